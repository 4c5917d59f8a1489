"""Common-collective elimination: of collectives that make the same of the same value, the first is enough."""

from __future__ import annotations

from planner.ir.collectives import Collective
from planner.ir.program import Instruction, Program, Reshard
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, is_pure, rewrite_once, zero_price


def eliminate_common_collectives(program: Program, price: Price = zero_price) -> Program:
    """Readers of a repeated collective read the first. What is shared lives longer: see `optimize` for the limit."""
    known: dict[tuple[Collective, str], str] = {}

    def share(draft: ProgramRewriter, done: Instruction) -> bool:
        if not isinstance(done, Reshard) or not is_pure(done):
            return False
        first = known.setdefault((done.collective, done.operand), done.result)
        return first != done.result and draft.replace(done, [], {done.result: first})

    return rewrite_once(program, price, share)
