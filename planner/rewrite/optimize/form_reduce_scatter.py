"""A reduce_scatter in place of an all_reduce of which each device keeps a part (RFC; ByteIR's canonicalisation).

all_reduce [0], all_slice [0] dim d     -> reduce_scatter [0] dim d              d may be any dim
all_reduce [0,1], all_slice [1] dim d   -> reduce_scatter [1] dim d, all_reduce [0] on the part
all_reduce [0], all_slice [0,1] dim d   -> reduce_scatter [0] dim d, all_slice [1] dim d
all_reduce [0], all_slice [1] dim d     -> all_slice [1] dim d, all_reduce [0] on the part
"""

from __future__ import annotations

from itertools import groupby

from planner.ir.collectives import Collective, Kind
from planner.ir.program import Instruction, Program, Reshard
from planner.ir.sharding import Axes
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, zero_price


def form_reduce_scatter(program: Program, price: Price = zero_price) -> Program:
    """Reduce no more than the slices where an all_slice alone reads an all_reduce."""
    return rewrite_once(program, price, _form)


def _form(draft: ProgramRewriter, done: Instruction) -> bool:
    if not isinstance(done, Reshard) or done.collective.kind is not Kind.ALL_SLICE or done.collective.dim is None:
        return False
    reduce = draft.find_move(done.operand, Kind.ALL_REDUCE)
    if reduce is None or draft.reads[reduce.result]:
        return False
    return draft.replace(
        done, plan_reduce_scatter(draft, reduce, done.collective.axes, dim=done.collective.dim, result=done.result)
    )


def plan_reduce_scatter(draft: ProgramRewriter, reduce: Reshard, axes: Axes, *, dim: int, result: str) -> list[Reshard]:
    """Return the moves from the operand of an all_reduce to a slice of its result along `dim` over `axes` in order."""
    reduced = reduce.collective.axes
    steps = [
        Collective(Kind.REDUCE_SCATTER if partial else Kind.ALL_SLICE, tuple(together), dim)
        for partial, together in groupby(axes, lambda axis: axis in reduced)
    ]
    rest = tuple(sorted(set(reduced) - set(axes)))
    steps += [Collective(Kind.ALL_REDUCE, rest)] if rest else []
    return draft.make_chain(reduce.operand, steps, result)
