"""Seeds of random cases: fixed ones, and a window of others that moves with the day.

The quick run takes a quarter of the cases, all from the window, so that every day tries others. The whole run takes
all the fixed seeds and the same window. `tests/conftest.py` sets the window once for all processes of a run, from the
date in UTC or from `--seed` or SHARDPLAN_TEST_SEED, and prints it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

Case = TypeVar("Case")

RUN, SEED = "SHARDPLAN_TEST_RUN", "SHARDPLAN_TEST_SEED"
QUICK, EVERYTHING = "quick", "everything"
SHARE = 4
"""One case in SHARE is in the window."""
EVERY_DAY = 10_007
"""Seeds between one day's window and the next; no window is wider. It is prime, so that `seed % n` shifts every day."""


def first_of_today() -> int:
    """Return the first seed of today's window."""
    return datetime.now(UTC).date().toordinal() * EVERY_DAY


def is_quick() -> bool:
    return os.environ.get(RUN, EVERYTHING) == QUICK


def window(cases: int) -> range:
    """Return the seeds of today's window, for this number of cases in all."""
    first = int(os.environ.get(SEED, first_of_today()))
    return range(first, first + -(-cases // SHARE))


def seeds(cases: int, first: int = 0) -> list[int]:
    """Return the seeds to try in this run, of `cases` in all starting at `first`."""
    fixed = [] if is_quick() else range(first, first + cases)
    return [*fixed, *window(cases)]


def batches(cases: int, size: int, first: int = 0) -> list[list[int]]:
    """Return the same seeds in batches of `size`."""
    every = seeds(cases, first)
    return [every[start : start + size] for start in range(0, len(every), size)]


def of_the_day(cases: Sequence[Case], share: int = SHARE) -> list[Case]:
    """Return the cases to try: all, or in the quick run one in `share`, in a daily rotation."""
    day, share = int(os.environ.get(SEED, first_of_today())) // EVERY_DAY, min(share, len(cases))
    return list(cases[day % share :: share] if cases and is_quick() else cases)


def at_least(share: float, cases: int) -> float:
    """How many of so many random cases a test must have looked at: that share of all; of the quick run's few, four
    standard deviations of a binomial count less, since other cases are drawn every day.
    """
    spread = 4 * math.sqrt(cases * share * (1 - share)) if is_quick() else 0.0
    return max(0.0, share * cases - spread)
