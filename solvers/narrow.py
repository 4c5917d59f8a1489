"""The best choice among few strategies, by a mixed-integer program in a process beside."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.ilp import Found, Task
from solvers.ledger import Ledger
from solvers.restrict import Restricted

# The share of the clock's time that a program is given, so that it answers in time.
PUNCTUAL = 0.95
# A rough guess for one program, in units of work, so that deterministic runs count it too.
WORK_PER_PAIR = 2e5


def solved(
    ledger: Ledger,
    narrow: Restricted,
    moments: Sequence[int],
    share: float,
    nodes: int | None,
    gap: float,
    seed: int,
) -> Found | None:
    """Solve a program within a share of the clock's time left, and offer its choice."""
    left = ledger.seconds_left
    hint = None if ledger.choice is None else narrow.lower(ledger.choice)
    seconds = None if left is None else PUNCTUAL * share * left
    found = ledger.beside(Task(narrow.problem, _unit(ledger), hint, moments, seconds, nodes, gap, seed))
    if left is not None and (found is None or not found.finished):
        ledger.stopped_by_clock()
    if found is not None:
        ledger.spend(WORK_PER_PAIR * (1000 + found.pairs))
        if found.choice is not None:
            ledger.offer(narrow.lift(found.choice))
    return found


def _unit(ledger: Ledger) -> float:
    return max((ledger.cost or ledger.largest_cost) / 1e6, 1e-6)
