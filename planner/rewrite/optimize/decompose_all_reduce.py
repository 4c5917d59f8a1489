"""An all_reduce as a reduce_scatter and an all_gather with the op between them on parts (SLD: all_reduce decompose).

    op(all_reduce x) -> all_gather op(reduce_scatter x)

An all_reduce sends as much as the two together. The op is computed once instead of on every device of the group, and
the all_gather may move further down. Of the dims that can be scattered the cheapest is chosen, on a tie the last.
"""

from __future__ import annotations

from planner.ir.collectives import Kind
from planner.ir.program import Instruction, OpCall, Program
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, zero_price
from planner.rewrite.optimize.split_op import SplitOp, parallel_loop, split_op


def decompose_all_reduce(program: Program, price: Price = zero_price) -> Program:
    """Decompose all_reduces that only one op reads around that op, along a dim that is a parallel loop of it."""
    return rewrite_once(program, price, _decompose)


def _decompose(draft: ProgramRewriter, done: Instruction) -> bool:
    if not isinstance(done, OpCall):
        return False
    offers = [offer for operand in range(len(done.operands)) for offer in _find_splits(draft, done, operand)]
    priced = [(estimate[0], offer) for offer in offers if (estimate := draft.cost(offer.instructions))]
    if not priced:
        return False
    _, best = min(priced, key=lambda pair: pair[0])
    return draft.replace(done, best.instructions, best.renames)


def _find_splits(draft: ProgramRewriter, run: OpCall, operand: int) -> list[SplitOp]:
    """Return the op split over the axes of the all_reduce that made an operand, along every dim of it, the last
    first.
    """
    reduce = draft.find_move(run.operands[operand], Kind.ALL_REDUCE)
    if reduce is None or draft.reads[reduce.result]:
        return []
    dims = range(len(run.op.rule.operands[operand]) - 1, -1, -1)
    loops = [loop for dim in dims if (loop := parallel_loop(run, operand, dim)) is not None]
    splits = [split_op(draft, run, loop, axes=reduce.collective.axes) for loop in loops]
    return [offer for offer in splits if offer is not None]
