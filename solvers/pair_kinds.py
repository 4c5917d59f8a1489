"""Number pairs of classes by what they cost and use, so that an edge stores a small number for each of its pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.model import Kinds

Integers = NDArray[np.int64]

# Odd 64-bit constants that spread the bits of a key (those of SplitMix64's finalizer).
FIRST_FACTOR, SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def number_rows(columns: Sequence[NDArray[Any]]) -> tuple[Kinds, Integers]:
    """Number the distinct rows of equally long columns of integers, in the order of their first appearance.

    Returns the number of each row, and the position of the first row of each number. Equal numbers mean equal rows.
    """
    whole = [np.asarray(column, np.int64) for column in columns]
    _, first, numbers = np.unique(_hash_rows(whole), return_index=True, return_inverse=True)
    if not all(np.array_equal(column[first][numbers], column) for column in whole):
        # Two rows have one hash: sorting whole rows is slower, and exact.
        _, first, numbers = np.unique(np.stack(whole, 1), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank: Kinds = np.empty(order.size, np.uint16 if order.size <= 1 << 16 else np.uint32)
    rank[order] = np.arange(order.size)
    kinds: Kinds = rank[numbers]
    return kinds, first[order].astype(np.int64)


def _hash_rows(columns: Sequence[Integers]) -> NDArray[np.uint64]:
    keys = np.zeros(columns[0].size, np.uint64)
    for column in columns:
        keys ^= column.view(np.uint64)
        keys *= FIRST_FACTOR
        keys ^= keys >> np.uint64(27)
        keys *= SECOND_FACTOR
        keys ^= keys >> np.uint64(31)
    return keys
