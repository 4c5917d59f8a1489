"""The SPMD level of the mesh dialect: collectives and queries on local tensors, verified."""

from __future__ import annotations

from planner.spmd.builder import SpmdBuilder
from planner.spmd.cluster import Cluster, declare_mesh, select_sub_cluster
from planner.spmd.coherence import check_coherence
from planner.spmd.instruction import LocalOp, SpmdCall, SpmdInstruction
from planner.spmd.op_table import SPMD_OPS
from planner.spmd.program import LocalValue, SpmdProgram
from planner.spmd.types import INDEX, LocalType, local_shape

__all__ = [
    "INDEX",
    "SPMD_OPS",
    "Cluster",
    "LocalOp",
    "LocalType",
    "LocalValue",
    "SpmdBuilder",
    "SpmdCall",
    "SpmdInstruction",
    "SpmdProgram",
    "check_coherence",
    "declare_mesh",
    "local_shape",
    "select_sub_cluster",
]
