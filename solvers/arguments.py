"""Checks of the arguments of solve(): each wrong one is refused by name, before any work is done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from solvers.evaluation import check_assignment
from solvers.model import InvalidProblem
from solvers.problem import Problem
from solvers.solution import DualWarmStart

RANGES = {"processes": range(1, 1 << 31), "seed": range(1 << 31), "nearest": range(1 << 31)}
"""The integers that each option of this name may be; HiGHS and CP-SAT keep a seed in 31 bits."""


def check_arguments(
    problem: Problem,
    starts: Sequence[Sequence[int]],
    start: DualWarmStart | None,
    *,
    time_limit: float | None,
    gap: float,
    cutoff: int | None,
    **integers: int,
) -> None:
    """Raise InvalidProblem at the first argument of solve() that is out of range or does not fit the problem."""
    if time_limit is not None and not (_is_finite(time_limit) and time_limit >= 0):
        raise InvalidProblem("time_limit", "solve", time_limit, "None or a finite number of seconds of at least 0")
    if not (_is_finite(gap) and 0 <= gap <= 1):
        raise InvalidProblem("gap", "solve", gap, "a number from 0 to 1")
    if cutoff is not None and not isinstance(cutoff, int):
        raise InvalidProblem("cutoff", "solve", cutoff, "None or an integer")
    for name, value in integers.items():
        if not isinstance(value, int) or value not in RANGES[name]:
            raise InvalidProblem(name, "solve", value, f"an integer from {RANGES[name][0]} to {RANGES[name][-1]}")
    for assignment in starts:
        check_assignment(problem, assignment)
    if start is not None:
        _check_messages(problem, start.messages)
        _check_multipliers(problem, start.multipliers)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _check_messages(problem: Problem, messages: np.ndarray) -> None:
    count = problem.arrays.source_class.size + problem.arrays.target_class.size
    if messages.shape != (count,):
        wanted = f"one for each of the {count} strategies at the ends of edges"
        raise InvalidProblem("messages", "start", list(messages.shape), wanted)
    if not np.isfinite(messages).all():
        raise InvalidProblem("messages", "start", "NaN or infinity", "finite numbers")


def _check_multipliers(problem: Problem, multipliers: Mapping[int, float]) -> None:
    time_steps = problem.arrays.time_steps
    for time_step, multiplier in multipliers.items():
        if time_step not in range(time_steps):
            raise InvalidProblem("multipliers", "start", f"time step {time_step}", f"one from 0 to {time_steps - 1}")
        if not (math.isfinite(multiplier) and multiplier >= 0):
            raise InvalidProblem("multipliers", "start", multiplier, "finite numbers of at least 0")
