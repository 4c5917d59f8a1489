"""Number arrays by content. Equal numbers mean equal arrays, not just equal hashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers import Kinds

Array = NDArray[Any]


class StoredArray(NamedTuple):
    """An array, or, with the kinds of the pairs of an edge, the matrix whose entries it holds by kind."""

    entries: Array
    kinds: Kinds | None

    def spread(self) -> Array:
        """Return the array or matrix itself."""
        return self.entries if self.kinds is None else self.entries[self.kinds]


@dataclass(eq=False)
class ArrayInterner:
    """Numbers arrays in the order in which they are seen. An array object that was seen before costs one lookup."""

    _first: list[StoredArray] = field(default_factory=list)
    _by_identity: dict[tuple[int, int], int] = field(default_factory=dict)
    _by_digest: dict[bytes, list[int]] = field(default_factory=dict)
    _kept: list[StoredArray] = field(default_factory=list)

    def number(self, entries: Array, kinds: Kinds | None = None) -> int:
        """Return the number of an array, equal for arrays of equal type, shape and content only.

        kinds: those of the pairs of an edge: the array is then the matrix with these `entries`.
        """
        stored = StoredArray(entries, kinds)
        number = self._by_identity.get((id(entries), id(kinds)))
        if number is not None:
            return number
        array = stored.spread()
        digest = blake2b(np.ascontiguousarray(array).data, key=f"{array.dtype}{array.shape}".encode()[:64]).digest()
        alike = self._by_digest.setdefault(digest, [])
        # Folding ties nodes by these numbers: a collision of digests would give wrong plans, so contents are compared
        # too.
        number = next((n for n in alike if np.array_equal(self._first[n].spread(), array)), len(self._first))
        if number == len(self._first):
            self._first.append(stored)
            alike.append(number)
        self.note_equal(stored, number)
        return number

    def note_equal(self, stored: StoredArray, number: int) -> None:
        """Note that an array has this number, which the caller vouches for."""
        self._by_identity[id(stored.entries), id(stored.kinds)] = number
        self._kept.append(stored)  # A freed array's id could be reused by another one.
