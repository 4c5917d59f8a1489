"""shardplan: how a model is sharded over a device mesh, with a certificate and the verdict of having run it.

Each name is imported from its home when it is first asked for: `planner.run` alone needs no solver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.choose.hardware import Hardware
    from planner.comparison import Comparison, compare
    from planner.errors import ShardplanError
    from planner.model.graph import Graph
    from planner.model.mesh import Mesh
    from planner.model.program import Program
    from planner.model.sharding import Sharding
    from planner.pipeline import plan, validated
    from planner.plans import Plan, Request
    from planner.progress import solving_line, survey_line

__all__ = [
    "Comparison",
    "Graph",
    "Hardware",
    "Mesh",
    "Plan",
    "Program",
    "Request",
    "Sharding",
    "ShardplanError",
    "compare",
    "plan",
    "solving_line",
    "survey_line",
    "validated",
]

_HOMES = {
    "Comparison": "planner.comparison",
    "Graph": "planner.model.graph",
    "Hardware": "planner.choose.hardware",
    "Mesh": "planner.model.mesh",
    "Plan": "planner.plans",
    "Program": "planner.model.program",
    "Request": "planner.plans",
    "Sharding": "planner.model.sharding",
    "ShardplanError": "planner.errors",
    "compare": "planner.comparison",
    "plan": "planner.pipeline",
    "solving_line": "planner.progress",
    "survey_line": "planner.progress",
    "validated": "planner.pipeline",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
