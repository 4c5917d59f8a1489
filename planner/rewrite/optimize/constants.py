"""What is made from nothing is made in parts (RFC: a splat constant and a local_split are a smaller constant).

all_slice of an op without operands -> the op, run on the part
"""

from __future__ import annotations

from planner.model.collectives import Kind
from planner.model.indexing import LoopKind
from planner.model.program import Instruction, Move, Program, Run
from planner.rewrite.optimize.draft import Draft, Price, free, sweep, widened


def slice_constants(program: Program, price: Price = free) -> Program:
    """An op without operands, read by an all_slice alone, makes the slice."""
    return sweep(program, price, _slice)


def _slice(draft: Draft, done: Instruction) -> bool:
    if not isinstance(done, Move) or done.collective.kind is not Kind.ALL_SLICE or draft.reads[done.operand]:
        return False
    maker = draft.written.get(draft.maker.get(done.operand, -1))
    if not isinstance(maker, Run) or maker.operands or len(maker.results) != 1 or done.collective.dim is None:
        return False
    dim = maker.op.rule.results[0][done.collective.dim]
    loops = enumerate(maker.op.rule.loops)
    loop = next((i for i, one in loops if dim.loops == (one.name,) and one.kind is LoopKind.PARALLEL), None)
    if loop is None:
        return False
    part = Run(maker.op, widened(maker.option, loop, done.collective.axes), (), maker.results)
    return draft.replace(done, [part], {done.result: maker.results[0]})
