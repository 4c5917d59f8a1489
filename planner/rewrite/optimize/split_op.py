"""Splits a parallel loop that an op ran whole, and gathers the results; two passes share this.

Every operand must be available in the split form without more being sent: it already is, or an all_gather made the
operand of it, or an all_reduce becomes a reduce_scatter, or each device slices what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.ir.collectives import Collective, Kind
from planner.ir.indexing import LoopKind
from planner.ir.notation import Term
from planner.ir.program import Instruction, OpCall, Reshard
from planner.ir.sharding import Axes, Sharding
from planner.rewrite.optimize.form_reduce_scatter import plan_reduce_scatter
from planner.rewrite.optimize.rewriter import ProgramRewriter, used_axes, widen_option


@dataclass(frozen=True)
class SplitOp:
    """The new instructions, and what readers of the old results are to read."""

    instructions: tuple[Instruction, ...]
    renames: dict[str, str]


def parallel_loop(run: OpCall, operand: int, dim: int) -> int | None:
    """Return the parallel loop along which a dim of an operand is split, None where there is none."""
    split_dim = run.op.rule.operands[operand][dim]
    if split_dim.joined or not split_dim.loops:
        return None
    loops = enumerate(run.op.rule.loops)
    return next((i for i, one in loops if one.name == split_dim.loops[0] and one.kind is LoopKind.PARALLEL), None)


def split_op(draft: ProgramRewriter, run: OpCall, loop: int, *, axes: Axes) -> SplitOp | None:
    """Return the op with the loop split over more axes, with the moves of its operands before it and gathers after it.

    Return None where that is not possible.
    """
    rule = run.op.rule
    option = widen_option(run.option, loop, axes)
    dims = [_split_dim(term, rule.loops[loop].name) for term in rule.results]
    if (
        run.loop_partitions
        or rule.windows
        or set(axes) & used_axes(run.option)
        or not rule.is_allowed(option, draft.program.mesh)
    ):
        return None
    moves: list[Reshard] = []
    available: dict[tuple[str, Sharding], str] = {}
    for position, name in enumerate(run.operands):
        wanted = rule.operand_sharding(position, option)
        # An op may read a value twice: it is brought into each sharding once.
        if (name, wanted) not in available:
            chain, available[name, wanted] = _reshard_operand(draft, name, wanted, axes=axes)
            moves += chain
    operands = tuple(available[name, rule.operand_sharding(i, option)] for i, name in enumerate(run.operands))
    gathers: list[Reshard] = []
    for name, dim in zip(run.results, dims, strict=True):
        if dim is None:
            return None
        gathers.append(Reshard(Collective(Kind.ALL_GATHER, axes, dim), name, draft.fresh_name(name)))
    added: tuple[Instruction, ...] = (*moves, OpCall(run.op, option, operands, run.results), *gathers)
    return SplitOp(added, {move.operand: move.result for move in gathers})


def _split_dim(term: Term, loop: str) -> int | None:
    """Return the dim that is split with a loop."""
    return next((i for i, dim in enumerate(term) if not dim.joined and dim.loops[:1] == (loop,)), None)


def _reshard_operand(draft: ProgramRewriter, name: str, wanted: Sharding, *, axes: Axes) -> tuple[list[Reshard], str]:
    """Return the moves that bring a value into the sharding that splits one of its dims further, and its name there."""
    held = draft.values[name].sharding
    if held == wanted:
        return [], name
    gather = draft.find_move(name, Kind.ALL_GATHER)
    if gather and draft.values[gather.operand].sharding == wanted:
        return [], gather.operand
    pairs = zip(held.split_axes, wanted.split_axes, strict=True)
    dim = next(i for i, (before, after) in enumerate(pairs) if before != after)
    reduce = draft.find_move(name, Kind.ALL_REDUCE)
    if reduce and not draft.reads[name]:
        moves = plan_reduce_scatter(draft, reduce, axes, dim=dim, result=draft.fresh_name(name))
    else:
        moves = draft.make_chain(name, [Collective(Kind.ALL_SLICE, axes, dim)])
    return moves, moves[-1].result
