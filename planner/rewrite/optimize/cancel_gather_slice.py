"""An all_slice after an all_gather, and the reverse (ByteIR's local_split of all_gather).

all_gather [0,1] dim d, all_slice [0] dim d  -> all_gather [1] dim d        the common beginning cancels
all_gather [0] dim d, all_slice [0,1] dim d  -> all_slice [1] dim d
all_slice [0,1] dim d, all_gather [1] dim d  -> all_slice [0] dim d         the common end cancels
all_slice [1] dim d, all_gather [0,1] dim d  -> all_gather [0] dim d
all_gather [0] dim d, all_slice [0] dim e    -> all_to_all [0] dim d -> e
all_gather [0] dim d, all_slice [1] dim e    -> all_slice [1] dim e, all_gather [0] dim d
"""

from __future__ import annotations

from planner.ir.collectives import Collective, Kind
from planner.ir.program import Instruction, Program, Reshard
from planner.ir.sharding import Axes
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, zero_price


def cancel_gather_slice(program: Program, price: Price = zero_price) -> Program:
    """Remove what a gather and a slice, one right after the other, undo of each other."""
    return rewrite_once(program, price, _cancel)


def _cancel(draft: ProgramRewriter, done: Instruction) -> bool:
    if not isinstance(done, Reshard):
        return False
    opposite = {Kind.ALL_SLICE: Kind.ALL_GATHER, Kind.ALL_GATHER: Kind.ALL_SLICE}.get(done.collective.kind)
    first = draft.find_move(done.operand, opposite) if opposite else None
    steps = _remaining_moves(first.collective, done.collective) if first else None
    if first is None or steps is None:
        return False
    if not steps:
        return draft.replace(done, [], {done.result: first.operand})
    stays = draft.reads[first.result] > 0
    if stays and any(step.kind is not Kind.ALL_SLICE for step in steps):
        return False
    return draft.replace(done, draft.make_chain(first.operand, steps, done.result))


def _remaining_moves(first: Collective, second: Collective) -> list[Collective] | None:
    """Return what is left of two moves; None where they are unrelated."""
    gather, cut = (first, second) if first.kind is Kind.ALL_GATHER else (second, first)
    if gather.dim != cut.dim:
        return _reorder_gather_slice(gather, cut) if first is gather else None
    if first is gather:
        common = _common_prefix(gather.axes, cut.axes)
        left, right = gather.axes[common:], cut.axes[common:]
    else:
        common = _common_prefix(gather.axes[::-1], cut.axes[::-1])
        left, right = gather.axes[: len(gather.axes) - common], cut.axes[: len(cut.axes) - common]
    moves = [Collective(Kind.ALL_GATHER, left, gather.dim)] if left else []
    moves += [Collective(Kind.ALL_SLICE, right, cut.dim)] if right else []
    return moves if common else None


def _reorder_gather_slice(gather: Collective, cut: Collective) -> list[Collective] | None:
    """Rewrite a gather of one dim before a slice of another."""
    if gather.axes == cut.axes:
        return [Collective(Kind.ALL_TO_ALL, cut.axes, cut.dim, gather.dim)]
    return None if set(gather.axes) & set(cut.axes) else [cut, gather]


def _common_prefix(one: Axes, other: Axes) -> int:
    """Return the length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
