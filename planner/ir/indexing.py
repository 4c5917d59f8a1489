"""Rules bound to sizes, and the shardings that an option (mesh axes per loop) gives every operand and result.

The semantics is that of the mesh dialect's sharding interface (loop iterator types and indexing maps):
  * splitting a parallel loop splits every dim it indexes;
  * splitting a reduction loop leaves the results partial over its axes, with the loop's reduction;
  * a compound dim can be split only along its major-most loop, and only evenly, so that a block of the dim
    is a block of the loop; a joined dim is always whole (its loops may be split where they stand elsewhere,
    but not when the joined dim is a result's);
  * a window dim, sum(coefficient * loop), is split along its first loop only: the blocks of the loop read blocks
    of the dim and a halo around them (`planner.ir.windows`);
  * a *linear* loop iterates over the terms of a partial sum: its operands come in partial over its axes and
    its results leave partial over them (the op commutes with the sum, or with the loop's other reduction).
A dim of size K split over n devices has blocks of ceil(K / n) (see `planner.ir.sharding`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache

from planner.errors import InvalidRule, InvalidSharding
from planner.ir.dynamic_dims import sizes_agree
from planner.ir.mesh import Mesh
from planner.ir.notation import Dim, Pattern, Term
from planner.ir.sharding import Axes, Reduction, Shape, Sharding
from planner.ir.windows import find_halo, window_fits

Option = tuple[Axes, ...]


class LoopKind(StrEnum):
    """Iterator types of the mesh dialect, and the loop over the terms of a partial sum."""

    PARALLEL = "parallel"
    REDUCTION = "reduction"
    BLOCKED = "blocked"
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of an op.

    A linear loop has no size of its own, and `operands` are those in which the op is linear. `reduction` combines the
    terms of a reduction or linear loop. An `even` loop may only be split evenly.
    """

    name: str
    size: int
    kind: LoopKind
    reduction: Reduction = Reduction.SUM
    operands: tuple[int, ...] = ()
    even: bool = False


@dataclass(frozen=True)
class Rule:
    """Loops with sizes, and one term per operand and result; `shapes` are those of the operands."""

    operands: tuple[Term, ...]
    results: tuple[Term, ...]
    loops: tuple[Loop, ...]
    pattern: Pattern
    shapes: tuple[Shape, ...]

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {loop.name: loop.size for loop in self.loops if loop.kind is not LoopKind.LINEAR}

    def operand_sharding(self, operand: int, option: Option) -> Sharding:
        """Return the sharding in which the op, run under `option`, takes an operand, without the halos of windows."""
        partial = tuple(
            (loop.reduction, axis)
            for loop, axes in zip(self.loops, option, strict=True)
            if operand in loop.operands
            for axis in axes
        )
        return _sharding(self._split(self.operands[operand], option), partial)

    def read_sharding(self, operand: int, option: Option, mesh: Mesh) -> Sharding:
        """Return the sharding in which the op, run under `option`, reads an operand, with the halos of windows."""
        plain = self.operand_sharding(operand, option)
        if operand not in self.windows:
            return plain
        halos = [
            find_halo(dim, size, self.sizes, parts=mesh.group_size(axes)) if dim.coefficients else (0, 0)
            for dim, size, axes in zip(self.operands[operand], self.shapes[operand], plain.split_axes, strict=True)
            if axes
        ]
        halo_sizes = tuple(size for pair in halos for size in pair)
        return replace(plain, halo_sizes=halo_sizes) if any(halo_sizes) else plain

    def result_sharding(self, result: int, option: Option) -> Sharding:
        """Return the sharding in which the op, run under `option`, leaves a result."""
        term = self.results[result]
        return _sharding(self._split(term, option), self._partial(term, option))

    def is_allowed(self, option: Option, mesh: Mesh) -> bool:
        """Return whether every loop can be split as far as the option does, and the option is sound."""
        loops = zip(self.loops, option, strict=True)
        return all(not axes or can_split(loop, mesh.group_size(axes)) for loop, axes in loops) and self.is_sound(
            option, mesh
        )

    def is_sound(self, option: Option, mesh: Mesh) -> bool:
        """Return whether every result has only one reduction, and neighbours hold the halos that windows need."""
        reduced = (self._partial(term, option) for term in self.results)
        return all(len(partial) <= 1 or len({kind for kind, _ in partial}) == 1 for partial in reduced) and all(
            self._halos_reach(operand, option, mesh) for operand in self.windows
        )

    def _halos_reach(self, operand: int, option: Option, mesh: Mesh) -> bool:
        try:
            self.read_sharding(operand, option, mesh).checked(self.shapes[operand], mesh)
        except InvalidSharding:
            return False
        return True

    @cached_property
    def operand_loops(self) -> frozenset[str]:
        """Loops along which an operand is split. Where an op has none of a split loop, every device has all the
        data.
        """
        return frozenset(dim.loops[0] for term in self.operands for dim in term if dim.loops and not dim.joined)

    @cached_property
    def windows(self) -> tuple[int, ...]:
        """Numbers of the operands with a window dim."""
        return tuple(i for i, term in enumerate(self.operands) if any(dim.coefficients for dim in term))

    def _split(self, term: Term, option: Option) -> tuple[Axes, ...]:
        axes = {loop.name: axes for loop, axes in zip(self.loops, option, strict=True)}
        return tuple(() if dim.joined or not dim.loops else axes[dim.loops[0]] for dim in term)

    def _partial(self, term: Term, option: Option) -> tuple[tuple[Reduction, int], ...]:
        """Return the reduction and mesh axis of every partial sum in a result."""
        present = {loop for dim in term for loop in dim.loops}
        return tuple(
            (loop.reduction, axis)
            for loop, axes in zip(self.loops, option, strict=True)
            if loop.kind is LoopKind.LINEAR or (loop.name in self.operand_loops and loop.name not in present)
            for axis in axes
        )


@lru_cache(1 << 16)
def _sharding(split: tuple[Axes, ...], partial: tuple[tuple[Reduction, int], ...]) -> Sharding:
    kinds = sorted({kind for kind, _ in partial})
    if len(kinds) > 1:
        raise InvalidRule("option mixes reductions", got=kinds, wanted="one kind")
    return Sharding(split, tuple(axis for _, axis in partial), kinds[0] if kinds else Reduction.SUM)


def can_split(loop: Loop, parts: int) -> bool:
    """Return whether a loop may be split over `parts` devices."""
    if loop.kind is LoopKind.LINEAR:
        return True
    return loop.kind is not LoopKind.BLOCKED and parts <= loop.size and (not loop.even or loop.size % parts == 0)


def matches_size(dim: Dim, size: int, sizes: Mapping[str, int]) -> bool:
    """Return whether loops of these sizes make, or read, a dim of that size."""
    return window_fits(dim, size, sizes) if dim.coefficients else sizes_agree(dim_size(dim, sizes), size)


def dim_size(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return the size of a dim whose loops have these sizes."""
    loops = [sizes[loop] for loop in dim.loops]
    if dim.coefficients:
        return 1 + sum(factor * (size - 1) for factor, size in zip(dim.coefficients, loops, strict=True))
    return sum(loops) if dim.joined else math.prod(loops)
