"""Folds two collectives in a row into one (RFC, all_reduce folder).

all_reduce [0], all_reduce [1]             -> all_reduce [0,1]
all_slice [0] dim d, all_slice [1] dim d   -> all_slice [0,1] dim d        reduce_scatter alike
all_gather [1] dim d, all_gather [0] dim d -> all_gather [0,1] dim d       the tail goes first
a collective over no axes                  -> nothing
"""

from __future__ import annotations

from dataclasses import replace

from planner.ir.program import Instruction, Program, Reshard
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, zero_price


def fold_collectives(program: Program, price: Price = zero_price) -> Program:
    """Fold two collectives of one kind (and dim), the first read only by the second, into one."""
    return rewrite_once(program, price, _fold)


def _fold(draft: ProgramRewriter, done: Instruction) -> bool:
    if not isinstance(done, Reshard):
        return False
    second = done.collective
    if not second.axes and draft.values[done.operand] == draft.values[done.result]:
        return draft.replace(done, [], {done.result: done.operand})
    before = draft.find_move(done.operand, second.kind)
    if before is None or draft.reads[done.operand] or before.collective.dim != second.dim:
        return False
    axes = second.definition.fold_axes(before.collective.axes, second.axes)
    return axes is not None and draft.replace(done, [Reshard(replace(second, axes=axes), before.operand, done.result)])
