"""The options of an op, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from planner.choose.options import OpCandidates
from planner.ir.indexing import Option
from planner.ir.sharding import Sharding

Offer = tuple[Option, int, tuple[Sharding, ...], tuple[Sharding, ...]]


def priced(offered: OpCandidates) -> Iterator[Offer]:
    """Yield each option with its time in ps and the shardings of its operands and results."""
    for strategy, (option, cost) in enumerate(zip(offered.options, offered.costs_ps.tolist(), strict=True)):
        sides = ([port.states[port.classes[strategy]] for port in side] for side in (offered.operands, offered.results))
        operands, results = map(tuple, sides)
        yield option, cost, operands, results
