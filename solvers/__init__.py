"""A weighted constraint solver (PBQP with time-indexed capacities): one strategy per node, at the least total cost.

`Problem` states nodes, edges and a usage limit that holds at every time step; `solve` returns an assignment with an
exact lower bound of the cost.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from solvers.evaluation import Evaluation, evaluate, usage_profile
from solvers.model import IMPOSSIBLE, Edge, EdgeUsage, InvalidProblem, Kinds, Node
from solvers.pair_kinds import number_rows
from solvers.problem import Problem
from solvers.solution import CUT_OFF, DualWarmStart, OperatorSlice, Progress, Solution, Status, TrajectoryPoint

if TYPE_CHECKING:
    from solvers.driver import solve as solve
    from solvers.exact_dual import ExactDual as ExactDual
    from solvers.exact_dual import compute_exact_dual as compute_exact_dual
    from solvers.linear_model import IncrementalLp as IncrementalLp
    from solvers.linear_model import LinearModel as LinearModel
    from solvers.warm_start import compute_warm_start as compute_warm_start

__all__ = [
    "CUT_OFF",
    "IMPOSSIBLE",
    "DualWarmStart",
    "Edge",
    "EdgeUsage",
    "Evaluation",
    "ExactDual",
    "IncrementalLp",
    "InvalidProblem",
    "Kinds",
    "LinearModel",
    "Node",
    "OperatorSlice",
    "Problem",
    "Progress",
    "Solution",
    "Status",
    "TrajectoryPoint",
    "compute_exact_dual",
    "compute_warm_start",
    "evaluate",
    "number_rows",
    "solve",
    "usage_profile",
]


LAZY_IMPORTS = {
    "solve": "solvers.driver",
    "compute_warm_start": "solvers.warm_start",
    "ExactDual": "solvers.exact_dual",
    "compute_exact_dual": "solvers.exact_dual",
    "IncrementalLp": "solvers.linear_model",
    "LinearModel": "solvers.linear_model",
}
"""Names whose modules import numba and OR-Tools, which takes about a second: they are imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LAZY_IMPORTS[name]), name)
