"""The options of one op: mesh axes for each loop, where each axis splits at most one loop, or both loops of a ring.

On meshes of many axes, axes are not put in every order, and some are joined (`planner.choose.axis_units`).

Options that split a loop too far are left out (`Rule.is_allowed`), and of several options with the same operand and
result shardings only the cheapest is kept, because nothing else of an option is seen by its neighbours. Operands
come with the halos that windows need. Partial sums pass through the ops that are linear in them; partial maxima and
their like are reduced where they arise (`planner.rewrite.optimize` moves those reductions past the ops that commute
with them).

The options and their shardings depend on the mesh only through how far each loop can be split (and through the halos of
windows), so they are cached for all meshes that agree in this. Costs are computed for each mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import permutations, product
from math import comb, factorial

import numpy as np
from numpy.typing import NDArray

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.operand_layouts import OperandLayouts
from planner.errors import InvalidRequest
from planner.ir.graph import Op, TensorType
from planner.ir.indexing import Loop, LoopKind, Option, Rule, can_split
from planner.ir.mesh import MAX_AXES, Mesh
from planner.ir.sharding import Axes, Reduction, Shape, Sharding

MAX_OPTIONS = 30_000
MAX_LAYOUTS = 1300
MAX_CACHED_RULES = 128
"""Number of rules whose options are cached."""
DivisibleAxes = tuple[frozenset[Axes], ...]
"""The ordered sets of mesh axes over which each loop, or dim, may be split."""
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OpCandidates:
    """Options with the layouts that neighbours see, the op's own time under each in ps, and bytes of its buffers."""

    options: tuple[Option, ...]
    operands: tuple[OperandLayouts, ...]
    results: tuple[OperandLayouts, ...]
    costs_ps: Integers
    buffers: Integers


def enumerate_options(rule: Rule, mesh: Mesh) -> tuple[Option, ...]:
    """Return all options of a rule; the first splits no loop. Raises InvalidRequest where there are too many."""
    return _enumerate_rule(_RuleKey.of(rule, mesh, AxisUnits.of(mesh))).options


def distinct_options(
    op: Op, operands: tuple[TensorType, ...], model: CostModel, *, units: AxisUnits | None = None
) -> OpCandidates:
    """Return the cheapest of the options with equal shardings of operands and results; of ties the first.

    `units`: the mesh axes that are put on loops as one; None: those of the mesh.
    """
    seen = _enumerate_rule(_RuleKey.of(op.rule, model.mesh, units or AxisUnits.of(model.mesh)))
    costs = model.options_ps(op, operands, seen.options, read=seen.operands, made=seen.results)
    # A stable sort: of equal costs the first option is chosen.
    by_signature = np.lexsort((costs, seen.signature))
    chosen = by_signature[np.flatnonzero(np.diff(seen.signature[by_signature], prepend=-1))]
    read, made = (
        [OperandLayouts(each.states, each.classes[chosen]) for each in side] for side in (seen.operands, seen.results)
    )
    options, buffers = tuple(seen.options[k] for k in chosen.tolist()), np.zeros(len(chosen), np.int64)
    if op.rule.ring:
        buffers[:] = [model.ring_traffic(op, operands, option).buffer_bytes for option in options]
    return OpCandidates(options, tuple(read), tuple(made), costs[chosen], buffers)


@dataclass(frozen=True, slots=True)
class _RuleKey:
    """Cache key of a rule on a mesh, equal for rules and meshes with the same options.

    The halos of windows depend on sizes: a rule with windows keeps its sizes and its mesh (`halos`). `rings` are the
    mesh axes along which blocks may travel.
    """

    rule: Rule
    divisible_axes: DivisibleAxes
    rings: frozenset[frozenset[int]]
    units: AxisUnits
    halos: Mesh | None
    mesh: Mesh = field(compare=False)

    @classmethod
    def of(cls, rule: Rule, mesh: Mesh, units: AxisUnits) -> _RuleKey:
        parts = _splitting_axes(mesh, units)
        may = tuple(frozenset(axes for axes, count in parts.items() if _may_split(each, count)) for each in rule.loops)
        check_option_count("options of an op", sum(map(bool, may)), units, where=mesh.notation, most=MAX_OPTIONS)
        return cls(
            rule if rule.windows else _drop_sizes(rule),
            may,
            frozenset(frozenset(axes) for axes, count in parts.items() if rule.can_travel(count)),
            units,
            mesh if rule.windows else None,
            mesh,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Enumerated:
    """All options of a rule, their layouts, and for each the first option with equal layouts (`signature`)."""

    options: tuple[Option, ...]
    operands: tuple[OperandLayouts, ...]
    results: tuple[OperandLayouts, ...]
    signature: NDArray[np.int64]


@lru_cache(maxsize=MAX_CACHED_RULES)
def _enumerate_rule(asked: _RuleKey) -> _Enumerated:
    rule, mesh = asked.rule, asked.mesh
    listed = tuple(option for option in _list_options(asked) if rule.is_sound(option, mesh))
    like = _shared_operands(rule)
    read = {i: OperandLayouts.of(rule.read_sharding(i, option, mesh) for option in listed) for i in dict.fromkeys(like)}
    made = tuple(
        OperandLayouts.of(rule.result_sharding(i, option) for option in listed) for i in range(len(rule.results))
    )
    signature = np.zeros(len(listed), np.int64)
    for port in (*read.values(), *made):
        _, first, number = np.unique(
            # Renumbered after each port, so that the product stays far below 2^63.
            signature * len(port.states) + port.classes,
            return_index=True,
            return_inverse=True,
        )
        signature = first[number]
    return _Enumerated(listed, tuple(read[i] for i in like), made, signature)


def _drop_sizes(rule: Rule) -> Rule:
    """Return a rule without windows with all sizes removed, as its options do not depend on them."""
    return replace(rule, loops=tuple(replace(loop, size=1, even=False) for loop in rule.loops), shapes=())


def _splitting_axes(mesh: Mesh, units: AxisUnits) -> dict[Axes, int]:
    """Return the sets of mesh axes that an option may put on a loop, each with its number of parts."""
    return {some: mesh.group_size(some) for some in units.combine()}


def _may_split(loop: Loop, parts: int) -> bool:
    sums = loop.kind is not LoopKind.LINEAR or loop.reduction is Reduction.SUM
    return sums and can_split(loop, parts)


def _list_options(asked: _RuleKey) -> Iterator[Option]:
    """Yield all options, each with the one in which blocks travel along the loop that stays, where they can."""
    for option in _assign_axes(asked.divisible_axes, asked.units):
        yield option
        if asked.rule.ring and frozenset(option[asked.rule.ring.stays]) in asked.rings:
            yield asked.rule.with_ring_axes(option, option[asked.rule.ring.stays])


def _assign_axes(fits: DivisibleAxes, axes: AxisUnits) -> Iterator[Option]:
    """Yield all ways to put mesh axes on what they may split, each on one at most."""
    places = [[None, *(at for at, each in enumerate(fits) if unit in each)] for unit in axes.units]
    for assignment in product(*places):
        chosen: list[list[int]] = [[] for _ in fits]
        for unit, at in zip(axes.units, assignment, strict=True):
            if at is not None:
                chosen[at].extend(unit)
        sets = list(map(tuple, chosen))
        if all(not some or some in each for some, each in zip(sets, fits, strict=True)):
            yield from product(*map(_orders, sets)) if axes.any_order else [tuple(sets)]


@lru_cache(maxsize=1 << MAX_AXES)
def _orders(axes: Axes) -> tuple[Axes, ...]:
    return tuple(permutations(axes))


def _shared_operands(rule: Rule) -> list[int]:
    """Return for each operand the first one that every option reads in the same sharding."""
    windows = set(rule.windows)
    keys = [
        (term, [i in loop.operands for loop in rule.loops], i if i in windows else None)
        for i, term in enumerate(rule.operands)
    ]
    return [keys.index(key) for key in keys]


def list_layouts(kind: TensorType, mesh: Mesh, units: AxisUnits | None = None) -> list[Sharding]:
    """Return all shardings of a tensor without partial axes: those that an input or output may have.

    `units`: the mesh axes that split a dim as one; None: those of the mesh. Raises InvalidRequest where there are too
    many.
    """
    units = units or AxisUnits.of(mesh)
    check_option_count("shardings of a tensor", len(kind.shape), units, where=mesh.notation, most=MAX_LAYOUTS)
    return list(map(Sharding, _assign_axes(divisible_axes(kind.shape, mesh, units), units)))


def divisible_axes(shape: Shape, mesh: Mesh, units: AxisUnits) -> DivisibleAxes:
    """Return for each dim the sets of mesh axes that split it into no more parts than it has elements."""
    parts = _splitting_axes(mesh, units)
    return tuple(frozenset(axes for axes, count in parts.items() if count <= size) for size in shape)


def check_option_count(what: str, places: int, units: AxisUnits, *, where: str, most: int) -> None:
    """Raise InvalidRequest where there are more than `most` ways to put k axis units on p places.

    There are (p+1)^k ways, or, where the order of units counts, C(k,m) m! C(m+p-1,m) for each number m of units.
    `where`: the mesh's notation.
    """
    axes = len(units.units)
    count = (places + 1) ** axes
    if units.any_order:
        count = sum(comb(axes, m) * factorial(m) * comb(m + places - 1, m) for m in range(axes + 1)) if places else 1
    if count > most:
        raise InvalidRequest(
            f"too many {what}",
            where=f"mesh {where}",
            got=f"{count} (rank or loops {places}, {axes} axes)",
            wanted=f"at most {most}: a mesh of fewer axes",
        )
