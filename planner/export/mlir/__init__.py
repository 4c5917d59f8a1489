"""Graphs and programs as MLIR text that mlir-opt 19 (mesh) or 22 (shard) parses and verifies."""

from __future__ import annotations

from planner.export.mlir.dialect import Dialect
from planner.export.mlir.graphs import print_graph
from planner.export.mlir.spmd import print_program, print_spmd, print_with_device_groups

__all__ = ["Dialect", "print_graph", "print_program", "print_spmd", "print_with_device_groups"]
