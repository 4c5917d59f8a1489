"""Makes constants in parts (RFC: a splat constant and a local_split are a smaller constant).

all_slice of an op without operands -> the op, run on the part
"""

from __future__ import annotations

from planner.ir.collectives import Kind
from planner.ir.indexing import LoopKind
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, widen_option, zero_price


def shrink_constants(program: Program, price: Price = zero_price) -> Program:
    """Let an op without operands, read only by an all_slice, make the slice."""
    return rewrite_once(program, price, _shrink)


def _shrink(draft: ProgramRewriter, done: Instruction) -> bool:
    if not isinstance(done, Reshard) or done.collective.kind is not Kind.ALL_SLICE or draft.reads[done.operand]:
        return False
    maker = draft.emitted.get(draft.maker.get(done.operand, -1))
    if not isinstance(maker, OpCall) or maker.operands or len(maker.results) != 1 or done.collective.dim is None:
        return False
    dim = maker.op.rule.results[0][done.collective.dim]
    loops = enumerate(maker.op.rule.loops)
    loop = next((i for i, one in loops if dim.loops == (one.name,) and one.kind is LoopKind.PARALLEL), None)
    if loop is None:
        return False
    part = OpCall(maker.op, widen_option(maker.option, loop, done.collective.axes), (), maker.results)
    return draft.replace(done, [part], {done.result: maker.results[0]})
