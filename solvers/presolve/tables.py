"""Pair costs as shared, unchanging tables, and what is true of a table whatever edge it lies on.

A training step repeats its layers, so a hundred thousand edges have a thousand different tables: each is kept once
(`Pool`), and what a reduction asks of it is found once and remembered with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
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


def _first_of_each(cells: Integers) -> tuple[Integers, Classes]:
    """The first of each group of equal rows, and each row's group."""
    groups: dict[bytes, int] = {}
    group_of = [groups.setdefault(row.tobytes(), len(groups)) for row in cells]
    classes = np.array(group_of, np.int32)
    return np.unique(classes, return_index=True)[1], classes


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
        first, row_class = _first_of_each(rest)
        other, column_class = _first_of_each(np.ascontiguousarray(rest.T))
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
        margin = np.empty((height, height), np.int64)
        for r, row in enumerate(self.cells):
            allowed = row < FORBIDDEN
            above = np.where(self.cells[:, allowed] < FORBIDDEN, self.cells[:, allowed] - row[allowed], FORBIDDEN)
            margin[:, r] = above.max(axis=1) if allowed.any() else 0
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
