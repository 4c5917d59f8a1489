"""shardplan: how a model is sharded over a device mesh, with a certificate and the verdict of having run it."""

from __future__ import annotations

from planner.choose.hardware import Hardware
from planner.errors import ShardplanError
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from planner.model.program import Program
from planner.model.sharding import Sharding
from planner.pipeline import plan, validated
from planner.plan import Plan, Request

__all__ = [
    "Graph",
    "Hardware",
    "Mesh",
    "Plan",
    "Program",
    "Request",
    "Sharding",
    "ShardplanError",
    "plan",
    "validated",
]
