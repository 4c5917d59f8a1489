"""Pair costs as shared, unchanging tables, and what is true of a table whatever edge it lies on.

A training step repeats its layers, so a hundred thousand edges have a thousand different tables: each is kept once
(`Pool`), and what a reduction asks of it is found once and remembered with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Classes = NDArray[np.int32]

FORBIDDEN = 1 << 60
"""What is impossible costs this inside presolve; sums are cut down to it."""
WIDEST_MARGIN = 1 << 26


class Split(NamedTuple):
    """cells[s, t] = rows[s] + columns[t] + table.cells[row_class[s], column_class[t]], no entry negative."""

    rows: Integers
    columns: Integers
    row_class: Classes
    column_class: Classes
    table: Table


def capped(cost: Integers) -> Integers:
    """Nothing above FORBIDDEN, so that forbidden things can be added up."""
    return np.minimum(cost, FORBIDDEN)


@njit(cache=True)
def _grouped(cells):  # type: ignore[no-untyped-def]
    """The first of each group of equal rows, and each row's group."""
    first, group_of, count = np.empty(cells.shape[0], np.int64), np.empty(cells.shape[0], np.int32), 0
    for s in range(cells.shape[0]):
        group = 0
        while group < count and not (cells[first[group]] == cells[s]).all():
            group += 1
        if group == count:
            first[count] = s
            count += 1
        group_of[s] = group
    return first[:count], group_of


@njit(cache=True)
def _margin(cells, forbidden):  # type: ignore[no-untyped-def]
    """margin[s, r]: the most that row s costs above row r in any column that r allows; at least -forbidden."""
    margin = np.empty((cells.shape[0], cells.shape[0]), np.int64)
    for r in range(cells.shape[0]):
        for s in range(cells.shape[0]):
            most = -forbidden
            for t in range(cells.shape[1]):
                if cells[r, t] < forbidden:
                    most = max(most, forbidden if cells[s, t] >= forbidden else cells[s, t] - cells[r, t])
                    if most == forbidden:
                        break
            margin[s, r] = most if most > -forbidden else 0
    return margin


class Table:
    """The costs of pairs of classes, rows of the one end by columns of the other."""

    def __init__(self, cells: Integers, pool: Pool) -> None:
        self.cells, self._pool = cells, pool

    @cached_property
    def turned(self) -> Table:
        """The same seen from the other end."""
        turned = self._pool.table(np.ascontiguousarray(self.cells.T))
        turned.__dict__.setdefault("turned", self)
        return turned

    @cached_property
    def dead(self) -> NDArray[np.bool_] | None:
        """Rows in which every pair is forbidden, None if there are none."""
        dead = np.asarray((self.cells >= FORBIDDEN).all(axis=1))
        return dead if dead.any() else None

    @cached_property
    def picks(self) -> Integers | None:
        """The one column that each row allows, None unless each allows exactly one."""
        allowed = self.cells < FORBIDDEN
        return allowed.argmax(axis=1) if (allowed.sum(axis=1) == 1).all() else None

    @cached_property
    def split(self) -> Split | None:
        """What rows and columns cost on their own taken out, equal ones merged; None where that changes nothing."""
        if self.dead is not None or self.turned.dead is not None:
            return None
        finite = self.cells < FORBIDDEN
        rows: Integers = self.cells.min(axis=1)
        rest = np.where(finite, self.cells - rows[:, None], FORBIDDEN)
        columns: Integers = rest.min(axis=0)
        rest = np.where(finite, rest - columns, FORBIDDEN)
        first, row_class = _grouped(rest)
        other, column_class = _grouped(np.ascontiguousarray(rest.T))
        small = rest[np.ix_(first, other)]
        if small.shape == self.cells.shape and not rows.any() and not columns.any():
            return None
        return Split(rows, columns, row_class, column_class, self._pool.table(small))

    @cached_property
    def margin(self) -> Integers | None:
        """margin[s, r]: the most that row s costs above row r in any column that r allows; None if too large to say."""
        height, width = self.cells.shape
        if height * height * width > WIDEST_MARGIN:
            return None
        margin: Integers = _margin(self.cells, FORBIDDEN)
        return margin


class Pool:
    """Each table and each array of classes once, and results remembered by what they were made of."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, bytes], Table] = {}
        self._classes: dict[bytes, Classes] = {}
        self._known: dict[Hashable, Any] = {}

    def table(self, cells: Integers) -> Table:
        """The one table with these (contiguous) cells."""
        key = (cells.shape[1], cells.tobytes())
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = Table(cells, self)
        return found

    def classes(self, classes: NDArray[np.integer]) -> Classes:
        """The one array with these classes."""
        narrow = classes.astype(np.int32, copy=False)
        return self._classes.setdefault(narrow.tobytes(), narrow)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """make(), or what it gave before for this key (made of tables, classes and identities of theirs)."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]
