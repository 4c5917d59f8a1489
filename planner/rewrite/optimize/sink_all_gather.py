"""An all_gather after an op in place of those before it (RFC, SLD: all_gather move down).

    op(all_gather x) -> all_gather op(x)

The gathered dim must be a parallel loop of the op, and every other operand must be available split along it without
more being sent. No device then repeats what others compute.
"""

from __future__ import annotations

from planner.ir.collectives import Kind
from planner.ir.program import Instruction, OpCall, Program
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, zero_price
from planner.rewrite.optimize.split_op import parallel_loop, split_op


def sink_all_gather(program: Program, price: Price = zero_price) -> Program:
    """Move all_gathers that only one op reads behind it, and on behind the ops after it."""
    return rewrite_once(program, price, _sink)


def _sink(draft: ProgramRewriter, done: Instruction) -> bool:
    if not isinstance(done, OpCall):
        return False
    return any(_sink_operand(draft, done, operand) for operand in range(len(done.operands)))


def _sink_operand(draft: ProgramRewriter, run: OpCall, operand: int) -> bool:
    gather = draft.find_move(run.operands[operand], Kind.ALL_GATHER)
    # With another reader the gather stays, and one behind the op would come on top of it.
    if gather is None or gather.collective.dim is None or draft.reads[gather.result]:
        return False
    loop = parallel_loop(run, operand, gather.collective.dim)
    offer = None if loop is None else split_op(draft, run, loop, axes=gather.collective.axes)
    return offer is not None and draft.replace(run, offer.instructions, offer.renames)
