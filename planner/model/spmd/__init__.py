"""The SPMD level of the mesh dialect: collectives and queries on local tensors, verified."""

from __future__ import annotations

from planner.model.spmd.build import Builder
from planner.model.spmd.cluster import Cluster, declared, sub_cluster
from planner.model.spmd.instruction import Call, Instruction, Local
from planner.model.spmd.program import SpmdProgram, Value
from planner.model.spmd.table import TABLE
from planner.model.spmd.types import INDEX, LocalType, local_shape

__all__ = [
    "INDEX",
    "TABLE",
    "Builder",
    "Call",
    "Cluster",
    "Instruction",
    "Local",
    "LocalType",
    "SpmdProgram",
    "Value",
    "declared",
    "local_shape",
    "sub_cluster",
]
