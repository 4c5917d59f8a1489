"""Choose one strategy per node at the least cost under a usage limit, with a proven exact bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from solvers.evaluation import Evaluation, evaluate, usage_profile
from solvers.parts import IMPOSSIBLE, Edge, EdgeUsage, InvalidProblem, Node
from solvers.problem import Problem
from solvers.solution import CUT_OFF, Progress, Solution, Status

if TYPE_CHECKING:
    from solvers.portfolio import solve as solve

__all__ = [
    "CUT_OFF",
    "IMPOSSIBLE",
    "Edge",
    "EdgeUsage",
    "Evaluation",
    "InvalidProblem",
    "Node",
    "Problem",
    "Progress",
    "Solution",
    "Status",
    "evaluate",
    "solve",
    "usage_profile",
]


def __getattr__(name: str) -> Any:
    """solve() brings numba and OR-Tools, which take a second to load: only when it is asked for."""
    if name != "solve":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from solvers.portfolio import solve

    return solve
