"""shardplan: choose how a model is sharded over a device mesh, prove how good the choice is, and run it.

Names are imported from their modules at first use, as `planner.run` alone needs no solver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.choose.hardware import Hardware
    from planner.comparison import Comparison, compare
    from planner.errors import ShardplanError
    from planner.ir.graph import Graph
    from planner.ir.mesh import Mesh
    from planner.ir.program import Program
    from planner.ir.sharding import Sharding
    from planner.pipeline import plan, validate_plan
    from planner.pipeline_stages.explain import PipelineExplanation, explain_pipeline
    from planner.pipeline_stages.pipeline_plan import PipelinePlan
    from planner.pipeline_stages.plan_pipeline import plan_pipeline
    from planner.pipeline_stages.request import PipelineRequest
    from planner.pipeline_stages.validate import validate_pipeline
    from planner.planning.plan_types import Plan, Request
    from planner.progress import capacity_line, solving_line

__all__ = [
    "Comparison",
    "Graph",
    "Hardware",
    "Mesh",
    "PipelineExplanation",
    "PipelinePlan",
    "PipelineRequest",
    "Plan",
    "Program",
    "Request",
    "Sharding",
    "ShardplanError",
    "capacity_line",
    "compare",
    "explain_pipeline",
    "plan",
    "plan_pipeline",
    "solving_line",
    "validate_pipeline",
    "validate_plan",
]

_HOMES = {
    "Comparison": "planner.comparison",
    "Graph": "planner.ir.graph",
    "Hardware": "planner.choose.hardware",
    "Mesh": "planner.ir.mesh",
    "PipelineExplanation": "planner.pipeline_stages.explain",
    "PipelinePlan": "planner.pipeline_stages.pipeline_plan",
    "PipelineRequest": "planner.pipeline_stages.request",
    "Plan": "planner.planning.plan_types",
    "Program": "planner.ir.program",
    "Request": "planner.planning.plan_types",
    "Sharding": "planner.ir.sharding",
    "ShardplanError": "planner.errors",
    "compare": "planner.comparison",
    "explain_pipeline": "planner.pipeline_stages.explain",
    "plan": "planner.pipeline",
    "plan_pipeline": "planner.pipeline_stages.plan_pipeline",
    "solving_line": "planner.progress",
    "capacity_line": "planner.progress",
    "validate_pipeline": "planner.pipeline_stages.validate",
    "validate_plan": "planner.pipeline",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
