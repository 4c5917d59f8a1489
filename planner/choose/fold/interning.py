"""Number arrays by content. Equal numbers mean equal arrays, not just equal hashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64] | NDArray[np.int32]


@dataclass(eq=False)
class ArrayInterner:
    """Numbers arrays in the order in which they are seen. An array object that was seen before costs one lookup."""

    _first: list[Array] = field(default_factory=list)
    _by_identity: dict[int, int] = field(default_factory=dict)
    _by_digest: dict[bytes, list[int]] = field(default_factory=dict)
    _kept: list[Array] = field(default_factory=list)

    def number(self, array: Array) -> int:
        """Return the number of an array, equal for arrays of equal type, shape and content only."""
        number = self._by_identity.get(id(array))
        if number is not None:
            return number
        digest = blake2b(np.ascontiguousarray(array).data, key=f"{array.dtype}{array.shape}".encode()[:64]).digest()
        alike = self._by_digest.setdefault(digest, [])
        # Folding ties nodes by these numbers: a collision of digests would give wrong plans, so contents are compared
        # too.
        number = next((n for n in alike if np.array_equal(self._first[n], array)), len(self._first))
        if number == len(self._first):
            self._first.append(array)
            alike.append(number)
        self._by_identity[id(array)] = number
        self._kept.append(array)  # A freed array's id could be reused by another one.
        return number
