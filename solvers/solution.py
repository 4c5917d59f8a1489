"""The result of a solve, its progress reports, and the dual values that a solve can start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
CUT_OFF = "nothing below the cutoff"
"""The `reason` of a solution where it is proven that no assignment costs less than the caller's cutoff."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Seconds since the start, the incumbent's cost and the proven lower bound in cost units, and the relative gap.

    incumbent and gap are None while no feasible assignment is known.
    """

    elapsed_s: float
    incumbent: int | None
    bound: int
    gap: float | None


@dataclass(frozen=True, slots=True)
class OperatorSlice:
    """One run of one of the solver's methods: when it began and how long it took, the bound and the incumbent's cost at
    its end, and the size of what it worked on (pairs on edges).

    Seconds are of wall clock where the solve has a time limit by the clock, and of work else, so that a reproducible
    solve has a reproducible log. Slices may nest: the search runs while a worker process solves.
    """

    began_s: float
    operator: str
    seconds: float
    lower: int
    upper: int | None
    size: int


@dataclass(frozen=True, slots=True)
class TrajectoryPoint:
    """The incumbent's cost and the bound from `seconds` (as of OperatorSlice) on, and the operator that moved them."""

    seconds: float
    cost: int | None
    bound: int
    operator: str


@dataclass(frozen=True, slots=True, eq=False)
class DualWarmStart:
    """Dual values that a solve can start from.

    multipliers: cost units per byte, by time step. messages: cost units, one per strategy at the source of each edge,
    then one per strategy at the targets (the order of source_class and target_class in ProblemArrays).
    """

    multipliers: Mapping[int, float]
    messages: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Solution:
    """The best assignment found and what is proven about it.

    status: "optimal" where the target gap is proven. cost, bound: in cost units; bound is an exact lower bound on the
    cost of every feasible assignment. gap: (cost - bound) / cost. reason: why the solve stopped. memory_price: cost
    units saved per additional byte of limit. reproducible: no wall clock decided where the search stopped. multipliers:
    by time step, empty where presolve changed the problem. nearest: the assignments with the least Lagrangian value at
    the last multipliers, within the limit or not, as many as were requested.

    log: every run of an operator. trajectory: cost and bound over time.

    bound_numeric: HiGHS's lower bound of the cost, from the last MIP of all that reduced costs left (None: there was no
    such MIP). It holds within HiGHS's tolerances (1e-6) and is no proof; bound is independent of it, and may be above.

    failures: what became of each worker process that failed, for example for lack of memory; none of them is the
    problem's fault, and another run may do better.

    For an infeasible problem, min_feasible_limit is the least limit in bytes known to be feasible (None: no assignment
    avoids everything forbidden), min_peak_assignment an assignment that fits it, and min_feasible_limit_bound a proven
    lower bound of it. They are None otherwise.
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
    failures: tuple[str, ...] = ()
    log: tuple[OperatorSlice, ...] = ()
    trajectory: tuple[TrajectoryPoint, ...] = ()
    bound_numeric: float | None = None
