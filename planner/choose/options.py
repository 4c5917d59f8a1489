"""The options of one op: mesh axes for every loop, each axis on at most one loop.

On meshes of many axes not in every order, and not each on its own (`planner.choose.axis_units`).

Loops that cannot be split that far are left out (`Rule.allows`), and of several options with the same operand and
result shardings only the cheapest is kept, because nothing else of an option is seen by its neighbours. Operands
come with the halos that windows need. Partial sums pass through the ops that are linear in them; partial maxima and
their like are reduced where they arise (`planner.rewrite.optimize` moves those reductions past the ops that commute
with them).

What the options are, and what neighbours see of them, depends on a mesh only by how far each loop can be split (and by
the halos of windows): it is remembered for the next mesh of which that is the same. Prices are the mesh's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import permutations, product
from math import comb, factorial

import numpy as np
from numpy.typing import NDArray

from planner.choose.axis_units import Units, combine_units, list_units, takes_any_order
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
"""Of how many rules the options are."""
DivisibleAxes = tuple[frozenset[Axes], ...]
"""Per loop, or dim, the sets of mesh axes, in order, that it may be split over."""
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OpCandidates:
    """Options with what the neighbours see of them; `costs_ps` are the op's own times."""

    options: tuple[Option, ...]
    operands: tuple[OperandLayouts, ...]
    results: tuple[OperandLayouts, ...]
    costs_ps: Integers


def enumerate_options(rule: Rule, mesh: Mesh) -> tuple[Option, ...]:
    """Every option of a rule; the first leaves all loops whole. Raises InvalidRequest where there are too many."""
    return _enumerate_rule(_RuleKey.of(rule, mesh)).options


def distinct_options(op: Op, operands: tuple[TensorType, ...], model: CostModel) -> OpCandidates:
    """The options of an op worth choosing from: the cheapest, and of those the first, that look alike from outside."""
    seen = _enumerate_rule(_RuleKey.of(op.rule, model.mesh))
    costs = model.options_ps(op, operands, seen.options, read=seen.operands, made=seen.results)
    by_look = np.lexsort((costs, seen.signature))
    chosen = by_look[np.flatnonzero(np.diff(seen.signature[by_look], prepend=-1))]
    read, made = (
        [OperandLayouts(each.states, each.classes[chosen]) for each in side] for side in (seen.operands, seen.results)
    )
    return OpCandidates(tuple(seen.options[k] for k in chosen.tolist()), tuple(read), tuple(made), costs[chosen])


@dataclass(frozen=True, slots=True)
class _RuleKey:
    """A rule on a mesh, which are any of those whose loops are split alike; with windows, whose halos depend on sizes,
    none but this rule on this mesh (`halos`)."""

    rule: Rule
    divisible_axes: DivisibleAxes
    units: Units
    halos: Mesh | None
    mesh: Mesh = field(compare=False)

    @classmethod
    def of(cls, rule: Rule, mesh: Mesh) -> _RuleKey:
        parts = _splitting_axes(mesh)
        may = tuple(frozenset(axes for axes, count in parts.items() if _may_split(each, count)) for each in rule.loops)
        check_option_count("options of an op", sum(map(bool, may)), mesh, most=MAX_OPTIONS)
        return cls(
            rule if rule.windows else _drop_sizes(rule),
            may,
            list_units(mesh),
            mesh if rule.windows else None,
            mesh,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Enumerated:
    """All options of a rule, in which shardings they read and make values, and for each the first that looks alike."""

    options: tuple[Option, ...]
    operands: tuple[OperandLayouts, ...]
    results: tuple[OperandLayouts, ...]
    signature: NDArray[np.int64]


@lru_cache(maxsize=MAX_CACHED_RULES)
def _enumerate_rule(asked: _RuleKey) -> _Enumerated:
    rule, mesh = asked.rule, asked.mesh
    listed = tuple(option for option in _assign_axes(asked.divisible_axes, asked.units) if rule.is_sound(option, mesh))
    like = _shared_operands(rule)
    read = {i: OperandLayouts.of(rule.read_sharding(i, option, mesh) for option in listed) for i in dict.fromkeys(like)}
    made = tuple(
        OperandLayouts.of(rule.result_sharding(i, option) for option in listed) for i in range(len(rule.results))
    )
    look = np.zeros(len(listed), np.int64)
    for port in (*read.values(), *made):
        _, first, number = np.unique(look * len(port.states) + port.classes, return_index=True, return_inverse=True)
        look = first[number]
    return _Enumerated(listed, tuple(read[i] for i in like), made, look)


def _drop_sizes(rule: Rule) -> Rule:
    """What is left of a rule without windows where the sizes of its loops do not count."""
    return replace(rule, loops=tuple(replace(loop, size=1, even=False) for loop in rule.loops), shapes=())


def _splitting_axes(mesh: Mesh) -> dict[Axes, int]:
    """The sets of mesh axes that split what they are put on, and into how many parts."""
    return {some: mesh.group_size(some) for some in combine_units(list_units(mesh))}


def _may_split(loop: Loop, parts: int) -> bool:
    sums = loop.kind is not LoopKind.LINEAR or loop.reduction is Reduction.SUM
    return sums and can_split(loop, parts)


def _assign_axes(fits: DivisibleAxes, units: Units) -> Iterator[Option]:
    """Yield all ways to put mesh axes on what they may split, each on one at most."""
    places = [[None, *(at for at, each in enumerate(fits) if unit in each)] for unit in units]
    for assignment in product(*places):
        chosen: list[list[int]] = [[] for _ in fits]
        for unit, at in zip(units, assignment, strict=True):
            if at is not None:
                chosen[at].extend(unit)
        sets = list(map(tuple, chosen))
        if all(not some or some in each for some, each in zip(sets, fits, strict=True)):
            yield from product(*map(_orders, sets)) if takes_any_order(units) else [tuple(sets)]


@lru_cache(maxsize=1 << MAX_AXES)
def _orders(axes: Axes) -> tuple[Axes, ...]:
    return tuple(permutations(axes))


def _shared_operands(rule: Rule) -> list[int]:
    """Per operand the first that every option reads in the same sharding."""
    windows = set(rule.windows)
    keys = [
        (term, [i in loop.operands for loop in rule.loops], i if i in windows else None)
        for i, term in enumerate(rule.operands)
    ]
    return [keys.index(key) for key in keys]


def list_layouts(kind: TensorType, mesh: Mesh) -> list[Sharding]:
    """Every sharding of a tensor without partial axes: what an input or output may have.

    Raises InvalidRequest where there are too many.
    """
    check_option_count("shardings of a tensor", len(kind.shape), mesh, most=MAX_LAYOUTS)
    return list(map(Sharding, _assign_axes(divisible_axes(kind.shape, mesh), list_units(mesh))))


def divisible_axes(shape: Shape, mesh: Mesh) -> DivisibleAxes:
    """Per dim the sets of mesh axes that split it into no more parts than it has elements."""
    parts = _splitting_axes(mesh)
    return tuple(frozenset(axes for axes, count in parts.items() if count <= size) for size in shape)


def check_option_count(what: str, places: int, mesh: Mesh, *, most: int) -> None:
    """Refuse what would not end: k units on p places can be put in (p+1)^k ways, m of them in order in
    C(k,m) m! C(m+p-1,m) ways."""
    axes = len(list_units(mesh))
    count = (places + 1) ** axes
    if takes_any_order(list_units(mesh)):
        count = sum(comb(axes, m) * factorial(m) * comb(m + places - 1, m) for m in range(axes + 1)) if places else 1
    if count > most:
        raise InvalidRequest(
            f"too many {what}",
            where=f"mesh {mesh.notation}",
            got=f"{count} (rank or loops {places}, {axes} axes)",
            wanted=f"at most {most}: a mesh of fewer axes",
        )
