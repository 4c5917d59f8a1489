"""One collective for two in a row (RFC, all_reduce folder).

all_reduce [0], all_reduce [1]             -> all_reduce [0,1]
all_slice [0] dim d, all_slice [1] dim d   -> all_slice [0,1] dim d        reduce_scatter alike
all_gather [1] dim d, all_gather [0] dim d -> all_gather [0,1] dim d       the tail goes first
a collective over no axes                  -> nothing
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.collectives import Kind
from planner.model.program import Instruction, Move, Program
from planner.model.sharding import Axes
from planner.rewrite.optimize.draft import Draft, Price, free, sweep


def fold_collectives(program: Program, price: Price = free) -> Program:
    """Two collectives of one kind (and dim), the first read by the second alone, become one."""
    return sweep(program, price, _fold)


def _fold(draft: Draft, done: Instruction) -> bool:
    if not isinstance(done, Move):
        return False
    second = done.collective
    if not second.axes and draft.values[done.operand] == draft.values[done.result]:
        return draft.replace(done, [], {done.result: done.operand})
    before = draft.move(done.operand, second.kind)
    if before is None or draft.reads[done.operand] or before.collective.dim != second.dim:
        return False
    axes = _folded(second.kind, before.collective.axes, second.axes)
    return axes is not None and draft.replace(done, [Move(replace(second, axes=axes), before.operand, done.result)])


def _folded(kind: Kind, first: Axes, second: Axes) -> Axes | None:
    match kind:
        case Kind.ALL_REDUCE:
            return tuple(sorted(first + second))
        case Kind.ALL_SLICE | Kind.REDUCE_SCATTER:
            return first + second
        case Kind.ALL_GATHER:
            return second + first
        case _:
            return None
