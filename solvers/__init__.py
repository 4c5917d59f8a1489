"""Choose one strategy per node at the least cost under a usage limit, with a proven exact bound."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from solvers.evaluation import Evaluation, evaluate, usage_profile
from solvers.parts import IMPOSSIBLE, Edge, EdgeUsage, InvalidProblem, Node
from solvers.problem import Problem
from solvers.solution import CUT_OFF, Progress, Solution, Start, Status

if TYPE_CHECKING:
    from solvers.converging import converged as converged
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
    "Start",
    "Status",
    "converged",
    "evaluate",
    "solve",
    "usage_profile",
]


LATE = {"solve": "solvers.portfolio", "converged": "solvers.converging"}
"""These bring numba and OR-Tools, which take a second to load: only when they are asked for."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATE[name]), name)
