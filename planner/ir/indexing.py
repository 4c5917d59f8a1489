"""Rules bound to sizes, and the shardings that an option (mesh axes per loop) gives every operand and result.

The semantics is that of the mesh dialect's sharding interface (loop iterator types and indexing maps):
  * splitting a parallel loop splits every dim it indexes;
  * splitting a reduction loop leaves the results partial over its axes, with the loop's reduction;
  * a compound dim can be split only along its major-most loop, and only evenly, so that a block of the dim
    is a block of the loop; a joined dim is always whole (its loops may be split where they stand elsewhere,
    but not when the joined dim is a result's);
  * a window dim, sum(coefficient * loop), is split along its first loop only: the blocks of the loop read blocks
    of the dim and a halo around them (`planner.ir.windows`);
  * an *opaque* loop belongs to an op of which only its annotations are known (`"use"(%a)`): it is split where an
    annotation of this op says so, sums nothing up, and may share mesh axes with the op's other loops;
  * a *linear* loop iterates over the terms of a partial sum: its operands come in partial over its axes and
    its results leave partial over them (the op commutes with the sum, or with the loop's other reduction);
  * blocks of a loop that may *travel* pass round a ring of the devices over which the loop that stays is split, so that
    each meets all of them: an option then gives both loops the same axes. Dims with the loop that travels alone are
    split along it, dims of terms with both along the one that stays, and no sums are left along the ring.
A dim of size K split over n devices has blocks of ceil(K / n) (see `planner.ir.sharding`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    OPAQUE = "opaque"


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


@dataclass(frozen=True, slots=True)
class Ring:
    """Numbers of the loop that stays and of the one that may travel, and how many times its blocks go round."""

    stays: int
    travels: int
    rounds: int


@dataclass(frozen=True)
class Rule:
    """Loops with sizes, and one term per operand and result; `shapes` are those of the operands.

    `ring`: the loops whose blocks may meet by travelling, if any.
    """

    operands: tuple[Term, ...]
    results: tuple[Term, ...]
    loops: tuple[Loop, ...]
    pattern: Pattern
    shapes: tuple[Shape, ...]
    ring: Ring | None = None

    def ring_axes(self, option: Option) -> Axes:
        """Return the mesh axes along which blocks travel under an option; none: nothing travels."""
        return option[self.ring.travels] if self.ring else ()

    def with_ring_axes(self, option: Option, axes: Axes) -> Option:
        """Return the option with blocks that travel along these axes."""
        return option if self.ring is None else (*option[: (at := self.ring.travels)], axes, *option[at + 1 :])

    def complete_option(self, option: Option, mesh: Mesh, where: str = "") -> Option:
        """Return an option with a list per loop and without axes of size 1, as `Sharding.complete` does for dims."""
        option = (*option, *[()] * (len(self.loops) - len(option)))
        around = tuple(axis for axis in self.ring_axes(option) if mesh.axes[axis].size != 1)
        plain = Sharding(self.with_ring_axes(option, ())).complete(len(self.loops), mesh, where)
        return self.with_ring_axes(plain.split_axes, around)

    def can_travel(self, parts: int) -> bool:
        """Return whether both loops of the ring have equal blocks on so many devices, two or more."""
        loops = () if self.ring is None else (self.loops[self.ring.stays], self.loops[self.ring.travels])
        return parts > 1 and bool(loops) and all(loop.size % parts == 0 for loop in loops)

    @cached_property
    def travelling(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Numbers of the operands and of the results whose blocks travel where the option says so."""
        at = None if self.ring is None else self.ring.travels
        operands, results = (
            tuple(n for n, layout in enumerate(layouts) if at is not None and at in layout.dims)
            for layouts in (self._operand_layouts, self._result_layouts)
        )
        return operands, results

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {loop.name: loop.size for loop in self.loops if loop.kind is not LoopKind.LINEAR}

    def operand_sharding(self, operand: int, option: Option) -> Sharding:
        """Return the sharding in which the op, run under `option`, takes an operand, without the halos of windows."""
        return self._operand_layouts[operand].sharding(option)

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
        return self._result_layouts[result].sharding(option)

    def is_allowed(self, option: Option, mesh: Mesh) -> bool:
        """Return whether every loop can be split as far as the option does, and the option is sound."""
        around = self.ring_axes(option)
        if (
            self.ring
            and around
            and not (option[self.ring.stays] == around and self.can_travel(mesh.group_size(around)))
        ):
            return False
        plain = self.with_ring_axes(option, ())
        loops = ((loop, axes) for loop, axes in zip(self.loops, plain, strict=True) if axes)
        fits = all(loop.kind is LoopKind.OPAQUE or can_split(loop, mesh.group_size(axes)) for loop, axes in loops)
        return fits and self.is_sound(option, mesh)

    def is_sound(self, option: Option, mesh: Mesh) -> bool:
        """Return whether every result has only one reduction, and neighbours hold the halos that windows need."""
        return all(len(layout.reductions(option)) <= 1 for layout in self._result_layouts) and all(
            self._halos_reach(operand, option, mesh) for operand in self.windows
        )

    def _halos_reach(self, operand: int, option: Option, mesh: Mesh) -> bool:
        try:
            self.read_sharding(operand, option, mesh).checked(self.shapes[operand], mesh)
        except InvalidSharding:
            return False
        return True

    @cached_property
    def is_opaque(self) -> bool:
        """Whether nothing relates the dims of operands and results."""
        return any(loop.kind is LoopKind.OPAQUE for loop in self.loops)

    def uses_axes_once(self, option: Option) -> bool:
        """Return whether no operand, no result and, unless the op is opaque, no two loops share a mesh axis."""
        layouts = (*self._operand_layouts, *self._result_layouts) if self.is_opaque else ()
        whole = list(self.with_ring_axes(option, ()))
        splits = [[option[loop] for loop in layout.dims if loop is not None] for layout in layouts] or [whole]
        named = [[axis for axes in split for axis in axes] for split in splits]
        return all(len(set(axes)) == len(axes) for axes in named)

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

    @cached_property
    def _operand_layouts(self) -> tuple[_LayoutOfOption, ...]:
        """How the option of an op shards each operand: partial along the loops in which the op is linear in it."""
        linear = ([operand in loop.operands for loop in self.loops] for operand in range(len(self.operands)))
        return tuple(map(self._layout, self.operands, linear))

    @cached_property
    def _result_layouts(self) -> tuple[_LayoutOfOption, ...]:
        """How the option of an op shards each result: partial along linear loops, and the operands' loops it lacks."""
        return tuple(self._layout(term, self._summed_loops(term)) for term in self.results)

    def _summed_loops(self, term: Term) -> list[bool]:
        """Return for each loop whether a result has partial sums where the loop is split."""
        summed = self.operand_loops - {loop for dim in term for loop in dim.loops}
        travels = self.ring and self.ring.travels
        return [
            loop.kind is LoopKind.LINEAR
            or (loop.name in summed and loop.kind is not LoopKind.OPAQUE and number != travels)
            for number, loop in enumerate(self.loops)
        ]

    def _layout(self, term: Term, partial: Sequence[bool]) -> _LayoutOfOption:
        numbers = {loop.name: number for number, loop in enumerate(self.loops)}
        dims = [None if dim.joined or not dim.loops else numbers[dim.loops[0]] for dim in term]
        sums = zip(self.loops, partial, strict=True)
        terms = tuple((n, loop.reduction) for n, (loop, is_sum) in enumerate(sums) if is_sum)
        stays, travels = (self.ring.stays, self.ring.travels) if self.ring else (None, None)
        if stays is not None and stays in dims:
            dims = [None if number == travels else number for number in dims]
        return _LayoutOfOption(len(self.loops), tuple(dims), terms, travels if travels in dims else None)


@dataclass(frozen=True, slots=True)
class _LayoutOfOption:
    """How the option of an op shards one operand or result.

    loops    the number of loops of the op
    dims     the number of the loop that splits each dim, or None
    partial  the loops along which the value is partial, with the reduction
    travels  the loop whose blocks of the value may travel: their terms are added up on the way
    """

    loops: int
    dims: tuple[int | None, ...]
    partial: tuple[tuple[int, Reduction], ...]
    travels: int | None = None

    def sharding(self, option: Option) -> Sharding:
        if len(option) != self.loops:
            raise InvalidRule("lists of an option", got=len(option), wanted=f"{self.loops}, one a loop")
        split = tuple([() if loop is None else option[loop] for loop in self.dims])
        added = () if self.travels is None else option[self.travels]
        terms = [(kind, axis) for loop, kind in self.partial for axis in option[loop] if axis not in added]
        return _sharding(split, tuple(terms))

    def reductions(self, option: Option) -> set[Reduction]:
        return {kind for loop, kind in self.partial if option[loop]}


def format_option(option: Option) -> str:
    """Return the text of an option: the axes of each loop."""
    return str([list(axes) for axes in option]).replace(" ", "")


@lru_cache(1 << 16)
def _sharding(split: tuple[Axes, ...], partial: tuple[tuple[Reduction, int], ...]) -> Sharding:
    kinds = sorted({kind for kind, _ in partial})
    if len(kinds) > 1:
        raise InvalidRule("option mixes reductions", got=kinds, wanted="one kind")
    return Sharding(split, tuple(axis for _, axis in partial), kinds[0] if kinds else Reduction.SUM)


def can_split(loop: Loop, parts: int) -> bool:
    """Return whether a loop may be split over `parts` devices by choice, so that each has a part of it."""
    is_free = loop.kind is LoopKind.LINEAR or (loop.kind is not LoopKind.OPAQUE and parts <= loop.size)
    return can_divide(loop, parts) and is_free


def can_divide(loop: Loop, parts: int) -> bool:
    """Return whether the blocks of a loop over `parts` devices, some perhaps empty, are blocks of its dims."""
    return loop.kind is not LoopKind.BLOCKED and (not loop.even or loop.size % parts == 0)


def matches_size(dim: Dim, size: int, sizes: Mapping[str, int]) -> bool:
    """Return whether loops of these sizes make, or read, a dim of that size."""
    return window_fits(dim, size, sizes) if dim.coefficients else sizes_agree(dim_size(dim, sizes), size)


def dim_size(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return the size of a dim whose loops have these sizes."""
    loops = [sizes[loop] for loop in dim.loops]
    if dim.coefficients:
        return 1 + sum(factor * (size - 1) for factor, size in zip(dim.coefficients, loops, strict=True))
    return sum(loops) if dim.joined else math.prod(loops)
