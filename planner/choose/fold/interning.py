"""Arrays by what they hold: a number for every different content; equal numbers mean equal arrays, not equal hashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64] | NDArray[np.int32]


@dataclass(eq=False)
class ArrayInterner:
    """Numbers of arrays, in the order in which they are seen; an array seen before costs a look-up."""

    _first: list[Array] = field(default_factory=list)
    _by_identity: dict[int, int] = field(default_factory=dict)
    _by_digest: dict[bytes, list[int]] = field(default_factory=dict)
    _kept: list[Array] = field(default_factory=list)

    def number(self, array: Array) -> int:
        """Equal for arrays of one type, shape and content, and only for them."""
        known = self._by_identity.get(id(array))
        if known is not None:
            return known
        digest = blake2b(np.ascontiguousarray(array).data, key=f"{array.dtype}{array.shape}".encode()[:64]).digest()
        alike = self._by_digest.setdefault(digest, [])
        found = next((n for n in alike if np.array_equal(self._first[n], array)), len(self._first))
        if found == len(self._first):
            self._first.append(array)
            alike.append(found)
        self._by_identity[id(array)] = found
        self._kept.append(array)  # or its identity could be another's
        return found
