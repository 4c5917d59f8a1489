"""Programs lowered to local tensors: run by the other executor, printed in both dialects and read back."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.export.mlir import Dialect, print_spmd
from planner.frontends.mlir import read_spmd
from planner.ir.program import Program
from planner.rewrite.lower_program import lower_program
from planner.run.spmd_executor import run_spmd
from planner.spmd import SpmdProgram
from tests.testing.layout_oracle import agree, shard_array, unshard_array

TOLERANCE = 1e-8


def check_lowered(program: Program, arrays: dict[str, Any], whole: dict[str, Any], seed: int) -> None:
    """Check what the lowered program computes, and what is read back from its text in both dialects."""
    lowered = lower_program(program)
    check_outputs(lowered, program, arrays, whole, seed=seed)
    for dialect in Dialect:
        text = print_spmd(lowered, dialect, program.graph.name)
        read = read_spmd(text)
        assert print_spmd(read, dialect, program.graph.name) == text
        if not any(value.sharding.halo_sizes for value in program.values.values()):
            # An op on shards with halos is printed on all that a device holds, and what lies beyond the tensor's ends
            # is undefined there.
            check_outputs(read, program, arrays, whole, seed=seed)


def check_outputs(
    lowered: SpmdProgram, program: Program, arrays: dict[str, Any], whole: dict[str, Any], *, seed: int
) -> None:
    """Check every output on every device."""
    random, mesh = np.random.default_rng(seed), program.mesh
    local = {name: shard_array(arrays[name], layout, mesh, random) for name, layout in program.arguments}
    with np.errstate(all="ignore"):
        run = run_spmd(lowered, local, precision="f64")
    for shards, value, name in zip(run.outputs, program.graph.outputs, program.outputs, strict=True):
        held = program.values[name]
        got = unshard_array([shard.array for shard in shards], held.sharding, held.type.shape, mesh)
        assert agree(got, whole[value], TOLERANCE), f"output {value}"
