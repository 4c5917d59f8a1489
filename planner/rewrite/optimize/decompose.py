"""A reduce_scatter and an all_gather for an all_reduce, the op between them on parts (SLD: all_reduce decompose).

    op(all_reduce x) -> all_gather op(reduce_scatter x)

An all_reduce sends as much as the two together; the op is computed once instead of on every device of the group,
and the all_gather may move further down. Of the dims that can be scattered the cheapest is, on a tie the last.
"""

from __future__ import annotations

from planner.model.collectives import Kind
from planner.model.program import Instruction, Program, Run
from planner.rewrite.optimize.draft import Draft, Price, free, sweep
from planner.rewrite.optimize.split_run import Offer, parallel_loop, split_run


def decompose_all_reduce(program: Program, price: Price = free) -> Program:
    """All_reduces read by one op alone, along a dim that is a parallel loop of it, are taken apart around it."""
    return sweep(program, price, _decompose)


def _decompose(draft: Draft, done: Instruction) -> bool:
    if not isinstance(done, Run):
        return False
    offers = [offer for operand in range(len(done.operands)) for offer in _offers(draft, done, operand)]
    priced = [(found[0], offer) for offer in offers if (found := draft.cost(offer.added))]
    if not priced:
        return False
    _, best = min(priced, key=lambda pair: pair[0])
    return draft.replace(done, best.added, best.names)


def _offers(draft: Draft, run: Run, operand: int) -> list[Offer]:
    """The op split over the axes of the all_reduce that made an operand, along every dim of it, the last first."""
    reduce = draft.move(run.operands[operand], Kind.ALL_REDUCE)
    if reduce is None or draft.reads[reduce.result]:
        return []
    dims = range(len(run.op.rule.operands[operand]) - 1, -1, -1)
    loops = [loop for dim in dims if (loop := parallel_loop(run, operand, dim)) is not None]
    found = [split_run(draft, run, loop, reduce.collective.axes) for loop in loops]
    return [offer for offer in found if offer is not None]
