"""The sharding option that an op takes from the shardings annotated around it (mesh dialect, getShardingOption).

Results are read first, then operands. The axes of a dim go to the loop it indexes (the major-most of a compound or
window); partial axes of a result go to the first reduction loop of their kind, unless an operand already split one.
A dim that no loop indexes, or whose loop may not be split (iterator type invalid), has no influence: the op takes it
whole. Two lists of axes on one loop, or one axis on two loops, are a conflict. An empty list claims nothing, but
contradicts axes that its loop already has. An op of which nothing is known (`LoopKind.OPAQUE`) takes what is annotated
for it and, where it has no results, what its operands are. Dims after the last split one are not mentioned at all.

Among the subsets of the known shardings, the dialect prefers (a) all of them with nothing resharded, (b) no reshard
of what is annotated explicitly for this op, (c) any. On ties it takes the first subset, where keeping comes before
leaving out and results before operands. What holds for a set holds for its subsets, so adding one sharding after the
other, each where it still fits, finds that first one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.errors import InvalidRule, InvalidSharding
from planner.ir.indexing import Loop, LoopKind, Option, Rule
from planner.ir.mesh import Mesh
from planner.ir.notation import Dim, Term
from planner.ir.sharding import Axes, Sharding

Given = Sequence[Sharding | None]


@dataclass(frozen=True, slots=True)
class KnownShardings:
    """The known shardings of an operand or result: annotated for this op, or else (`implied`) elsewhere, the best
    first.
    """

    explicit: Sharding | None = None
    implied: tuple[Sharding, ...] = ()


def find_preferred_option(
    rule: Rule, mesh: Mesh, operands: Sequence[KnownShardings], *, results: Sequence[KnownShardings]
) -> Option | None:
    """Return the option that the dialect prefers, or None where no sharding is known that the op could take.

    Raises InvalidSharding where the explicit annotations contradict each other.
    """
    if rule.is_opaque and any(rule.results):
        results, operands = ([KnownShardings(known.explicit) for known in side] for side in (results, operands))
    slots = (*results, *operands)
    count = len(results)
    explicit = [slot.explicit for slot in slots]
    if not any(explicit) and not any(slot.implied for slot in slots):
        return None
    accepted: list[Sharding | None] = list(explicit)
    option = infer_default_option(rule, mesh, explicit[count:], results=explicit[:count])
    # Annotations of this op that can be met are kept: implied shardings may only add to them.
    keep = _meets_explicit(rule, option, explicit, count=count)
    for place, slot in enumerate(slots):
        for other in slot.implied:
            trial = [*accepted[:place], other, *accepted[place + 1 :]]
            trial_option = _fit_option(rule, mesh, trial, count=count)
            if trial_option is not None and (not keep or _meets_explicit(rule, trial_option, explicit, count=count)):
                accepted, option = trial, trial_option
                break
    return option if any(accepted) else None


def _fit_option(rule: Rule, mesh: Mesh, known: Given, *, count: int) -> Option | None:
    try:
        return infer_default_option(rule, mesh, known[count:], results=known[:count])
    except InvalidSharding:
        return None


def _meets_explicit(rule: Rule, option: Option, explicit: Given, *, count: int) -> bool:
    """Return whether the op, run under the option, reads and leaves what is annotated for it."""
    for place, annotated in enumerate(explicit):
        if annotated is not None:
            result = rule.result_sharding(place, option) if place < count else None
            if drop_halos(annotated) != (result or rule.operand_sharding(place - count, option)):
                return False
    return True


def drop_halos(sharding: Sharding) -> Sharding:
    """Return the sharding without halos and offsets, which options do not have."""
    return replace(sharding, halo_sizes=(), sharded_dims_offsets=())


def infer_default_option(rule: Rule, mesh: Mesh, operands: Given, *, results: Given) -> Option:
    """Return the option that shardings of some operands and results imply. Raises InvalidSharding for a conflict."""
    loops = _Loops(rule, mesh)
    for number, (term, sharding) in enumerate(zip(rule.results, results, strict=True)):
        loops.take_axes(term, sharding, f"result {number}")
    for number, (term, sharding) in enumerate(zip(rule.operands, operands, strict=True)):
        loops.take_axes(term, sharding, f"operand {number}")
    for number, sharding in enumerate(results):
        if sharding is not None and sharding.partial:
            loops.assign_partial(sharding, f"result {number}")
    return check_option(rule, mesh, tuple(loops.axes.get(loop.name, ()) for loop in rule.loops))


class _Loops:
    def __init__(self, rule: Rule, mesh: Mesh) -> None:
        self.rule, self.mesh = rule, mesh
        self.by_name = {loop.name: loop for loop in rule.loops}
        self.axes: dict[str, Axes] = {}

    def take_axes(self, term: Term, sharding: Sharding | None, where: str) -> None:
        mentioned = sharding.split_axes[: sharding.split_dims[-1] + 1] if sharding and sharding.split_dims else ()
        for dim, axes in zip(term, mentioned, strict=False):
            if (name := major_loop(dim)) and can_split_over(self.by_name[name], axes, self.mesh):
                self.assign(name, axes, where)

    def assign(self, name: str, axes: Axes, where: str) -> None:
        if (self.axes.get(name) or axes) != axes:
            raise InvalidSharding(
                f"conflict: two lists of axes on loop {name}",
                where=where,
                got=f"{list(axes)} after {list(self.axes[name])}",
                wanted="one",
            )
        for other, others in self.axes.items():
            if other != name and set(axes) & set(others) and not self.rule.is_opaque:
                got = f"{list(axes)} on {name}, {list(others)} on {other}"
                raise InvalidSharding("conflict: one axis on two loops", where=where, got=got, wanted="each axis once")
        # An empty list leaves the loop open to a later operand; results come first, as in the dialect.
        self.axes[name] = self.axes.get(name) or axes

    def assign_partial(self, sharding: Sharding, where: str) -> None:
        """Assign the partial axes of a result to its reduction loops, unless operands already split one of them."""
        loops = [loop for loop in self.rule.loops if loop.kind is LoopKind.REDUCTION]
        alike = [loop for loop in loops if loop.reduction is sharding.reduction]
        if not alike:
            raise InvalidSharding(
                f"conflict: no {sharding.reduction} loop leaves the result partial",
                where=where,
                got=str(sharding),
                wanted=f"one of {[f'{loop.name} ({loop.reduction})' for loop in loops]}",
            )
        if not any(self.axes.get(loop.name) for loop in loops):
            self.assign(alike[0].name, sharding.partial, where)


def major_loop(dim: Dim) -> str | None:
    """Return the loop along which a dim is split; None for a literal 1 or a joined dim."""
    return None if dim.joined or not dim.loops else dim.loops[0]


def can_split_over(loop: Loop, axes: Axes, mesh: Mesh) -> bool:
    """Return whether a loop may be split over axes.

    A compound dim may only be split evenly; an axis of unknown size is assumed to divide it.
    """
    sizes = [mesh.axes[axis].size for axis in axes]
    known = math.prod(size for size in sizes if size is not None)
    return loop.kind is not LoopKind.BLOCKED and (not loop.even or None in sizes or loop.size % known == 0)


def check_option(rule: Rule, mesh: Mesh, option: Option) -> Option:
    """Return the option with one list per loop and without axes of size 1.

    An option with fewer lists than loops leaves the last loops whole. Raises InvalidSharding for too many lists, an
    axis that the mesh lacks or that is named twice, a loop that may not be split, and a result that is partial by two
    reductions.
    """
    if len(option) > len(rule.loops):
        raise InvalidSharding("more lists than loops", got=len(option), wanted=f"at most {len(rule.loops)}")
    if rule.is_opaque:  # its loops may share axes
        split = tuple(axes for each in option for axes in Sharding((each,)).complete(1, mesh).split_axes)
        split += ((),) * (len(rule.loops) - len(option))
    else:
        split = Sharding(tuple(option)).complete(len(rule.loops), mesh).split_axes
    if not rule.uses_axes_once(split):
        raise InvalidSharding("mesh axis duplicated", got=split, wanted="each axis at most once in a tensor")
    for loop, axes in zip(rule.loops, split, strict=True):
        if axes and not can_split_over(loop, axes, mesh):
            raise InvalidSharding(
                f"loop {loop.name} may not be split over these axes", got=list(axes), wanted=f"{loop.kind}"
            )
    try:
        for number in range(len(rule.results)):
            rule.result_sharding(number, split)
    except InvalidRule as error:
        raise InvalidSharding(f"conflict: {error.what}", got=error.got, wanted=error.wanted) from None
    return split
