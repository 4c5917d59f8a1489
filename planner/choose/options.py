"""The options of one op: mesh axes for every loop, each axis on at most one loop, in every order.

Loops that cannot be split that far are left out (`Rule.allows`), and of several options with the same operand and
result shardings only the cheapest is kept, because nothing else of an option is seen by its neighbours. Operands
come with the halos that windows need. Partial sums pass through the ops that are linear in them; partial maxima and
their like are reduced where they arise (`planner.rewrite.optimize` moves those reductions past the ops that commute
with them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from math import comb, factorial

from planner.choose.cost import CostModel
from planner.errors import InvalidRequest
from planner.model.graph import Op, TensorType
from planner.model.indexing import Loop, LoopKind, Option, Rule, splittable
from planner.model.mesh import Mesh
from planner.model.sharding import Reduction, Sharding

MAX_OPTIONS = 30_000
MAX_LAYOUTS = 700


@dataclass(frozen=True, slots=True)
class Candidate:
    """An option with what the neighbours see of it. `cost_ps` is the op's own time."""

    option: Option
    operands: tuple[Sharding, ...]
    results: tuple[Sharding, ...]
    cost_ps: int


def options(rule: Rule, mesh: Mesh) -> Iterator[Option]:
    """Every option of a rule; the first leaves all loops whole. Raises InvalidRequest where there are too many."""
    chosen = [i for i, loop in enumerate(rule.loops) if not _commutes_with_another_than_sums(loop)]
    places = [[None, *(i for i in chosen if n > 1 and splittable(rule.loops[i], n))] for n in mesh.shape]
    check_count("options of an op", len({i for axis in places for i in axis} - {None}), mesh, MAX_OPTIONS)
    for assignment in product(*places):
        for option in _orders(assignment, len(rule.loops)):
            if rule.allows(option, mesh):
                yield option


def _commutes_with_another_than_sums(loop: Loop) -> bool:
    return loop.kind is LoopKind.LINEAR and loop.reduction is not Reduction.SUM


def _orders(assignment: tuple[int | None, ...], loops: int) -> Iterator[Option]:
    """Options that put axis a on loop assignment[a], in every order of the axes of a loop."""
    chosen: list[list[int]] = [[] for _ in range(loops)]
    for axis, loop in enumerate(assignment):
        if loop is not None:
            chosen[loop].append(axis)
    yield from product(*(permutations(axes) for axes in chosen))


def candidates(op: Op, operands: tuple[TensorType, ...], model: CostModel) -> list[Candidate]:
    """The options of an op worth choosing from, cheapest first among those that look alike from outside."""
    best: dict[tuple[tuple[Sharding, ...], tuple[Sharding, ...]], Candidate] = {}
    like = _read_alike(op.rule)
    for option in options(op.rule, model.mesh):
        known = {i: op.rule.read_sharding(i, option, model.mesh) for i in dict.fromkeys(like)}
        read = tuple(known[i] for i in like)
        made = tuple(op.rule.result_sharding(i, option) for i in range(len(op.results)))
        cost = model.op_between_ps(op, operands, option, read, made)
        seen = best.get((read, made))
        if seen is None or cost < seen.cost_ps:
            best[read, made] = Candidate(option, read, made, cost)
    return list(best.values())


def _read_alike(rule: Rule) -> list[int]:
    """Per operand the first that every option reads in the same sharding."""
    windows = set(rule.windows)
    keys = [
        (term, [i in loop.operands for loop in rule.loops], i if i in windows else None)
        for i, term in enumerate(rule.operands)
    ]
    return [keys.index(key) for key in keys]


def layouts(kind: TensorType, mesh: Mesh) -> list[Sharding]:
    """Every sharding of a tensor without partial axes: what an input or output may have.

    Raises InvalidRequest where there are too many.
    """
    check_count("shardings of a tensor", len(kind.shape), mesh, MAX_LAYOUTS)
    places: list[list[int | None]] = [
        [None, *(dim for dim, size in enumerate(kind.shape) if 1 < n <= size)] for n in mesh.shape
    ]
    return [
        Sharding(order)
        for assignment in product(*places)
        for order in _orders(assignment, len(kind.shape))
        if all(mesh.group_size(axes) <= size for axes, size in zip(order, kind.shape, strict=True))
    ]


def check_count(what: str, places: int, mesh: Mesh, most: int) -> None:
    """Refuse what would not end: m of k axes in order on p places can be chosen in C(k,m) m! C(m+p-1,m) ways."""
    axes = sum(size > 1 for size in mesh.shape)
    count = sum(comb(axes, m) * factorial(m) * comb(m + places - 1, m) for m in range(axes + 1)) if places else 1
    if count > most:
        raise InvalidRequest(
            f"too many {what}",
            where=f"mesh {mesh.notation}",
            got=f"{count} (rank or loops {places}, {axes} axes)",
            wanted=f"at most {most}: a mesh of fewer axes",
        )
