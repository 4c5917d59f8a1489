"""One reduce_scatter after an op in place of those before it (RFC, reduce_scatter reassociate).

    add(reduce_scatter x, reduce_scatter y) -> reduce_scatter add(x, y)

The conditions are those of all_reduce, and the scattered dim of every operand must be the same loop of the op. The op
then runs on tensors that are not scattered yet, so the price decides.
"""

from __future__ import annotations

from planner.ir.collectives import Collective, Kind
from planner.ir.indexing import Option
from planner.ir.notation import Term
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Axes
from planner.rewrite.optimize.reassociate_all_reduce import find_reduced_group, try_linear_loops, undo_moves
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, widen_option, zero_price


def reassociate_reduce_scatter(program: Program, price: Price = zero_price) -> Program:
    """Move reduce_scatters over the same axes and loop, each read only by the op, behind it."""
    return rewrite_once(program, price, try_linear_loops(_reassociate))


def _reassociate(draft: ProgramRewriter, run: OpCall, number: int) -> bool:
    rule, group = run.op.rule, run.op.rule.loops[number].operands
    scatters = find_reduced_group(draft, run, group, kind=Kind.REDUCE_SCATTER)
    if any(draft.values[m.operand].sharding.reduction is not rule.loops[number].reduction for m in scatters):
        return False
    axes = {move.collective.axes for move in scatters}
    loops = {_loop_at(rule.operands[i], m.collective.dim) for i, m in zip(group, scatters, strict=False)}
    if len(axes) != 1 or len(loops) != 1:
        return False
    loop = loops.pop()
    dims = [[dim for dim in range(len(term)) if _loop_at(term, dim) == loop] for term in rule.results]
    if any(len(found) != 1 for found in dims):
        return False
    place = next(i for i, one in enumerate(rule.loops) if one.name == loop)
    moved = axes.pop()
    option = widen_option(_trim_option(run.option, place, moved), number, moved)
    if not rule.is_allowed(option, draft.program.mesh):
        return False
    partial = OpCall(run.op, option, undo_moves(run, group, scatters), run.results)
    moves = [
        Reshard(Collective(Kind.REDUCE_SCATTER, moved, dim), name, draft.fresh_name(name))
        for name, (dim,) in zip(run.results, dims, strict=True)
    ]
    return draft.replace(run, [partial, *moves], {move.operand: move.result for move in moves})


def _loop_at(term: Term, dim: int | None) -> str | None:
    """Return the loop along which a dim is split; None for a joined dim."""
    if dim is None or term[dim].joined or not term[dim].loops:
        return None
    return term[dim].loops[0]


def _trim_option(option: Option, loop: int, axes: Axes) -> Option:
    """Return the option without the axes at the tail of a loop's list, where a reduce_scatter has put them."""
    return (*option[:loop], option[loop][: -len(axes)], *option[loop + 1 :])
