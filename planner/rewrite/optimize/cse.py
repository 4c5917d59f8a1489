"""Common-collective elimination: of equal collectives of the same value, only the first is kept."""

from __future__ import annotations

from planner.ir.collectives import Collective
from planner.ir.program import Instruction, Program, Reshard
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, zero_price


def eliminate_common_collectives(program: Program, price: Price = zero_price) -> Program:
    """Let readers of a repeated collective read the first.

    What is shared lives longer; `optimize` keeps to a memory limit.
    """
    first_result: dict[tuple[Collective, str], str] = {}

    def share(draft: ProgramRewriter, done: Instruction) -> bool:
        if not isinstance(done, Reshard):
            return False
        first = first_result.setdefault((done.collective, done.operand), done.result)
        return first != done.result and draft.replace(done, [], {done.result: first})

    return rewrite_once(program, price, share)
