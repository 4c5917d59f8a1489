"""Common-collective elimination: of collectives that make the same of the same value, the first is enough."""

from __future__ import annotations

from planner.model.collectives import Collective
from planner.model.program import Instruction, Move, Program
from planner.rewrite.optimize.draft import Draft, Price, free, is_pure, sweep


def share_collectives(program: Program, price: Price = free) -> Program:
    """Readers of a repeated collective read the first. What is shared lives longer: see `optimize` for the limit."""
    known: dict[tuple[Collective, str], str] = {}

    def share(draft: Draft, done: Instruction) -> bool:
        if not isinstance(done, Move) or not is_pure(done):
            return False
        first = known.setdefault((done.collective, done.operand), done.result)
        return first != done.result and draft.replace(done, [], {done.result: first})

    return sweep(program, price, share)
