"""Strategies on a mesh of two axes: which loops they split, which bytes they receive, and what a layout change costs.

A strategy gives each mesh axis one of the op's loops or none, so an op of L loops has (L + 1)^2 strategies; a tensor's
layout gives each axis one of its dims or none. Costs are bytes received: an all-reduce where an axis splits a loop
that the result lacks, a gather or an exchange where a layout changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from solvers import IMPOSSIBLE

Integers = NDArray[np.int64]
Layout = tuple[int, ...]
Strategy = tuple[str, ...]
ELEMENT_BYTES = 2
# Multiplications in the time that one byte is received.
INTENSITY = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """An op's loops by letter: operands and result are the letters of their dims."""

    operands: tuple[str, ...]
    result: str

    @property
    def loops(self) -> str:
        """Return every letter once, those of the result first."""
        return "".join(dict.fromkeys(self.result + "".join(self.operands)))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the mesh's axes, and of the loops by letter."""

    mesh: tuple[int, int]
    loops: tuple[tuple[str, int], ...]

    def bytes(self, letters: str) -> int:
        """Return the bytes of a tensor of these dims."""
        return ELEMENT_BYTES * self.count(letters)

    def count(self, letters: str) -> int:
        """Return the number of points in these loops."""
        sizes = dict(self.loops)
        return prod(sizes[letter] for letter in letters)

    def divides(self, strategy: Strategy) -> bool:
        """Return whether every split loop divides evenly."""
        sizes, parts = dict(self.loops), dict[str, int]()
        for letter, size in zip(strategy, self.mesh, strict=True):
            parts[letter] = parts.get(letter, 1) * size
        return all(sizes[letter] % count == 0 for letter, count in parts.items() if letter)


@cache
def strategies(loops: str, sizes: Sizes, forbid: bool) -> tuple[Strategy, ...]:
    """Return the strategies that divide evenly; forbid: the others too, which their cost then forbids."""
    every = product(("", *loops), repeat=len(sizes.mesh))
    return tuple(strategy for strategy in every if forbid or sizes.divides(strategy))


@cache
def own_costs(rule: Rule, sizes: Sizes, forbid: bool) -> Integers:
    """Bytes to finish partial results, what a product computes in bytes' time, and a unit for every axis that splits
    nothing (as compilers break ties)."""
    costs, products = [], sizes.count(rule.loops) // INTENSITY if len(rule.operands) > 1 else 0
    for strategy in strategies(rule.loops, sizes, forbid):
        local = _parts(strategy, rule.result, sizes)
        moved = [
            2 * (size - 1) * sizes.bytes(rule.result) // (size * local)
            for letter, size in zip(strategy, sizes.mesh, strict=True)
            if letter and letter not in rule.result
        ]
        computed = products // _parts(strategy, rule.loops, sizes) if rule.loops != rule.result else 0
        idle = sum(not letter for letter in strategy)
        costs.append(sum(moved) + computed + idle if sizes.divides(strategy) else IMPOSSIBLE)
    return np.array(costs, np.int64)


@cache
def usages(rule: Rule, sizes: Sizes, forbid: bool) -> Integers:
    """Return the bytes of the result on a device, by strategy."""
    whole = sizes.bytes(rule.result)
    every = strategies(rule.loops, sizes, forbid)
    return np.array([-(-whole // _parts(strategy, rule.result, sizes)) for strategy in every], np.int64)


def _parts(strategy: Strategy, letters: str, sizes: Sizes) -> int:
    return prod(size for letter, size in zip(strategy, sizes.mesh, strict=True) if letter and letter in letters)


@cache
def layouts(rule: Rule, letters: str, sizes: Sizes, forbid: bool) -> tuple[Layout, ...]:
    """The layout, by the number of a dim or -1 for each axis, that each strategy means for a tensor of these dims."""
    every = strategies(rule.loops, sizes, forbid)
    return tuple(tuple(letters.find(letter) if letter else -1 for letter in strategy) for strategy in every)


@cache
def change_cost(source: Layout, target: Layout, whole: int, mesh: tuple[int, int]) -> int:
    """Return the bytes received to change one layout to the other, axis by axis."""
    held = whole // prod(size for dim, size in zip(source, mesh, strict=True) if dim >= 0)
    moved = 0
    for old, new, size in zip(source, target, mesh, strict=True):
        if old >= 0 and new < 0:
            moved += (size - 1) * held
            held *= size
        elif old != new and old >= 0:
            moved += (size - 1) * held // size
    return moved


@cache
def change_costs(sources: tuple[Layout, ...], targets: tuple[Layout, ...], whole: int, sizes: Sizes) -> Integers:
    """Return change costs [sources, targets], cached, so that equal questions share one array."""
    return np.array([[change_cost(s, t, whole, sizes.mesh) for t in targets] for s in sources], np.int64)


@cache
def ties(sources: tuple[Layout, ...], targets: tuple[Layout, ...]) -> Integers:
    """Return costs [sources, targets]: 0 where layouts are equal, else IMPOSSIBLE."""
    return np.array([[0 if s == t else IMPOSSIBLE for t in targets] for s in sources], np.int64)


@cache
def nothing(height: int, width: int) -> Integers:
    """Return zeros [height, width], cached."""
    return np.zeros((height, width), np.int64)
