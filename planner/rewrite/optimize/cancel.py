"""An all_slice after an all_gather, and the other way round (ByteIR's local_split of all_gather).

all_gather [0,1] dim d, all_slice [0] dim d  -> all_gather [1] dim d        the common beginning cancels
all_gather [0] dim d, all_slice [0,1] dim d  -> all_slice [1] dim d
all_slice [0,1] dim d, all_gather [1] dim d  -> all_slice [0] dim d         the common end cancels
all_slice [1] dim d, all_gather [0,1] dim d  -> all_gather [0] dim d
all_gather [0] dim d, all_slice [0] dim e    -> all_to_all [0] dim d -> e
all_gather [0] dim d, all_slice [1] dim e    -> all_slice [1] dim e, all_gather [0] dim d
"""

from __future__ import annotations

from planner.model.collectives import Collective, Kind
from planner.model.program import Instruction, Move, Program
from planner.model.sharding import Axes
from planner.rewrite.optimize.draft import Draft, Price, free, sweep


def cancel_gathers_and_slices(program: Program, price: Price = free) -> Program:
    """What a gather and a slice in a row undo of each other is not done."""
    return sweep(program, price, _cancel)


def _cancel(draft: Draft, done: Instruction) -> bool:
    if not isinstance(done, Move):
        return False
    opposite = {Kind.ALL_SLICE: Kind.ALL_GATHER, Kind.ALL_GATHER: Kind.ALL_SLICE}.get(done.collective.kind)
    first = draft.move(done.operand, opposite) if opposite else None
    steps = _steps(first.collective, done.collective) if first else None
    if first is None or steps is None:
        return False
    if not steps:
        return draft.replace(done, [], {done.result: first.operand})
    stays = draft.reads[first.result] > 0
    if stays and any(step.kind is not Kind.ALL_SLICE for step in steps):
        return False
    return draft.replace(done, draft.chain(first.operand, steps, done.result))


def _steps(first: Collective, second: Collective) -> list[Collective] | None:
    """What is left of two moves; None where they have nothing to do with each other."""
    gather, cut = (first, second) if first.kind is Kind.ALL_GATHER else (second, first)
    if gather.dim != cut.dim:
        return _across(gather, cut) if first is gather else None
    if first is gather:
        common = _common(gather.axes, cut.axes)
        left, right = gather.axes[common:], cut.axes[common:]
    else:
        common = _common(gather.axes[::-1], cut.axes[::-1])
        left, right = gather.axes[: len(gather.axes) - common], cut.axes[: len(cut.axes) - common]
    kept = [Collective(Kind.ALL_GATHER, left, gather.dim)] if left else []
    kept += [Collective(Kind.ALL_SLICE, right, cut.dim)] if right else []
    return kept if common else None


def _across(gather: Collective, cut: Collective) -> list[Collective] | None:
    """A gather of one dim before a slice of another."""
    if gather.axes == cut.axes:
        return [Collective(Kind.ALL_TO_ALL, cut.axes, cut.dim, gather.dim)]
    return None if set(gather.axes) & set(cut.axes) else [cut, gather]


def _common(one: Axes, other: Axes) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
