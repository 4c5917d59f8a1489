"""Checks that exported programs compute the graph's numbers under JAX and move the predicted bytes."""

from __future__ import annotations

from math import prod

import numpy as np

from planner.ir.accounting import count_received_bytes
from planner.ir.collectives import Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard, ShardedValue
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Reduction, shard_shape, shard_shapes
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs, random_later_data
from tests.testing.jax_devices import on_eight_devices
from tests.testing.micro_steps import stack_data

OF_JAX = (Reduction.SUM, Reduction.MAX, Reduction.MIN)


def is_even(program: Program) -> bool:
    values = program.values.values()
    return all(len(np.unique(shard_shapes(v.sharding, v.type.shape, program.mesh), axis=0)) == 1 for v in values)


def filled_bytes(program: Program) -> int:
    """Bytes that move where collectives move blocks filled up to the first, by the ring's formulas."""
    mesh, total = program.mesh, 0
    for done in program.instructions:
        if isinstance(done, Reshard):
            held, made = program.values[done.operand], program.values[done.result]
            total += filled_elements(done.collective, held, made, mesh) * held.type.itemsize
        else:
            for name, blocks in done.list_ring_blocks(mesh):
                held = program.values[name]
                block = prod(shard_shape(held.sharding, held.type.shape, mesh)) * held.type.itemsize
                total += mesh.devices * blocks.received * block
    return total


def filled_elements(move: Collective, held: ShardedValue, made: ShardedValue, mesh: Mesh) -> int:
    n, shape = mesh.group_size(move.axes), held.type.shape
    have, want = (list(shard_shape(each.sharding, shape, mesh)) for each in (held, made))
    match move.kind:
        case Kind.ALL_GATHER:
            received = (n - 1) * prod(have)
        case Kind.REDUCE_SCATTER if held.sharding.reduction is Reduction.SUM:
            received = (n - 1) * prod(want)
        case Kind.ALL_TO_ALL:
            dim = move.dim or 0
            received = (n - 1) * prod([*have[:dim], want[dim], *have[dim + 1 :]])
        case Kind.ALL_REDUCE if held.sharding.reduction in OF_JAX:
            return mesh.devices // n * 2 * (n - 1) * prod(have)
        case Kind.ALL_SLICE:
            received = 0
        case _:
            return int(plan_transfers(held.sharding, made.sharding, shape, mesh).received.sum())
    return mesh.devices * received


def agree(programs: list[Program], shared: bool = False) -> None:
    """Numbers and bytes are those of the graph and of the accounts, for all programs in one process.

    `shared`: of moves that are alike XLA does one.
    """
    from planner.export.shard_map import print_shard_map

    inputs = [random_inputs(program.graph, np, "declared", seed=0) for program in programs]
    others = [random_later_data(program.graph, np, "declared", seed=0) for program in programs]
    jobs = [
        (print_shard_map(program), [stack_data(arrays[name], name, later) for name, _ in program.arguments])
        for program, arrays, later in zip(programs, inputs, others, strict=True)
    ]
    done = zip(programs, inputs, others, on_eight_devices(jobs), strict=True)
    for program, arrays, later, (results, moved) in done:
        with np.errstate(all="ignore"):
            whole = run_whole(program.graph, arrays, np, precision="declared", later=later)
        for name, result in zip(program.graph.outputs, results, strict=True):
            most = np.abs(whole[name][np.isfinite(whole[name])]).max(initial=1e-30)
            np.testing.assert_allclose(result, whole[name], rtol=0, atol=1e-5 * most, err_msg=str(program))
        counted, predicted = sum(count for _, count in moved), filled_bytes(program)
        assert counted == predicted or (shared and counted < predicted), program
        received = count_received_bytes(program).sum(axis=1) // np.array(program.trips)
        assert predicted == received.sum() or not is_even(program)
