"""What a solve answers, and what it tells on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
CUT_OFF = "nothing below the cutoff"
"""The reason of a solution where that is proven."""


@dataclass(frozen=True, slots=True)
class Progress:
    """elapsed_s since the start; the incumbent's cost and the proven bound in cost units; None: none yet."""

    elapsed_s: float
    incumbent: int | None
    bound: int
    gap: float | None


@dataclass(frozen=True, slots=True, eq=False)
class DualWarmStart:
    """Where a solve may begin: prices of moments (cost units a byte), and messages at these prices (units of cost), of
    each strategy at the source of each edge, then at the targets."""

    multipliers: Mapping[int, float]
    messages: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Solution:
    """The best choice found and what is proven about it.

    bound: an exact lower bound of every feasible choice's cost. gap: (cost - bound) / cost. optimal: the gap asked
    for is proven. memory_price: cost units saved per extra byte of limit. For an infeasible problem
    least_limit is the least limit known to be feasible (bytes; None: no possible choice at all), leanest a choice
    that fits it, and least_limit_bound a proven lower bound of it. reproducible: no wall clock decided where the
    search stopped. prices: of the moments, where presolve left the problem as it is; nearest: the choices that cost
    least at the last prices, whether they fit the limit or not, as many as were asked for.
    """

    status: Status
    assignment: tuple[int, ...] | None
    cost: int | None
    bound: int
    gap: float | None
    wall_s: float
    reason: str
    memory_price: float
    min_feasible_limit: int | None
    min_feasible_limit_bound: int | None
    reproducible: bool
    min_peak_assignment: tuple[int, ...] | None = None
    multipliers: Mapping[int, float] = field(default_factory=dict)
    nearest: tuple[tuple[int, ...], ...] = ()
