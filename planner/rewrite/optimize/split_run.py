"""An op run on parts of a parallel loop that it ran whole, and its results gathered: what two passes share.

Every operand must be had in the split form without more being sent: it is so already, or it is what an all_gather
was made of, or an all_reduce becomes a reduce_scatter, or each device slices what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.collectives import Collective, Kind
from planner.model.indexing import LoopKind
from planner.model.notation import Term
from planner.model.program import Instruction, Move, Run
from planner.model.sharding import Axes, Sharding
from planner.rewrite.optimize.draft import Draft, used_axes, widened
from planner.rewrite.optimize.scatter import scattered


@dataclass(frozen=True)
class Offer:
    """Instructions, and what readers of the old results are to read."""

    added: tuple[Instruction, ...]
    names: dict[str, str]


def parallel_loop(run: Run, operand: int, dim: int) -> int | None:
    """The parallel loop along which a dim of an operand is split."""
    found = run.op.rule.operands[operand][dim]
    if found.joined or not found.loops:
        return None
    loops = enumerate(run.op.rule.loops)
    return next((i for i, one in loops if one.name == found.loops[0] and one.kind is LoopKind.PARALLEL), None)


def split_run(draft: Draft, run: Run, loop: int, axes: Axes) -> Offer | None:
    """The op with the loop split over more axes, between what brings its operands there and its results back."""
    rule = run.op.rule
    option = widened(run.option, loop, axes)
    dims = [_dim_of(term, rule.loops[loop].name) for term in rule.results]
    if run.cuts or rule.windows or set(axes) & used_axes(run.option) or not rule.allows(option, draft.program.mesh):
        return None
    moves: list[Move] = []
    brought: dict[tuple[str, Sharding], str] = {}
    for position, name in enumerate(run.operands):
        wanted = rule.operand_sharding(position, option)
        if (name, wanted) not in brought:
            chain, brought[name, wanted] = _brought(draft, name, wanted, axes)
            moves += chain
    operands = tuple(brought[name, rule.operand_sharding(i, option)] for i, name in enumerate(run.operands))
    gathers: list[Move] = []
    for name, dim in zip(run.results, dims, strict=True):
        if dim is None:
            return None
        gathers.append(Move(Collective(Kind.ALL_GATHER, axes, dim), name, draft.fresh(name)))
    added: tuple[Instruction, ...] = (*moves, Run(run.op, option, operands, run.results), *gathers)
    return Offer(added, {move.operand: move.result for move in gathers})


def _dim_of(term: Term, loop: str) -> int | None:
    """The dim that is split with a loop."""
    return next((i for i, dim in enumerate(term) if not dim.joined and dim.loops[:1] == (loop,)), None)


def _brought(draft: Draft, name: str, wanted: Sharding, axes: Axes) -> tuple[list[Move], str]:
    """The moves that bring a value into the sharding that splits one of its dims further, and its name there."""
    held = draft.values[name].sharding
    if held == wanted:
        return [], name
    gather = draft.move(name, Kind.ALL_GATHER)
    if gather and draft.values[gather.operand].sharding == wanted:
        return [], gather.operand
    pairs = zip(held.split_axes, wanted.split_axes, strict=True)
    dim = next(i for i, (before, after) in enumerate(pairs) if before != after)
    reduce = draft.move(name, Kind.ALL_REDUCE)
    if reduce and not draft.reads[name]:
        moves = scattered(draft, reduce, axes, dim, draft.fresh(name))
    else:
        moves = draft.chain(name, [Collective(Kind.ALL_SLICE, axes, dim)])
    return moves, moves[-1].result
