"""Ops whose blocks travel, as jax.shard_map: JAX computes the graph's numbers and moves the predicted bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.choose.hardware import load_profile
from planner.errors import InvalidSharding
from planner.ir.mesh import Mesh
from planner.pipeline import plan
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from planner.run.validate import validate
from tests.testing.graphs import Sketch
from tests.testing.jax_agreement import agree, is_even
from tests.testing.jax_devices import on_eight_devices
from tests.testing.ring_programs import ATTENTION, ring_program

pytestmark = pytest.mark.frameworks("jax")


@pytest.mark.parametrize("mesh", ["2", "4", "2x2", "2x4"])
def test_blocks_that_travel_are_permuted_in_a_loop(mesh: str) -> None:
    """XLA's text has a loop of n - 1 steps once: where the ring has two devices, its bytes are all there."""
    programs = [program for seed in range(6) if is_even(program := ring_program(mesh, seed))]
    assert programs
    agree(programs, shared=True)


def test_devices_of_a_ring_run_the_same_code() -> None:
    """Three heads of queries for one of keys, in blocks of two and one."""
    s = Sketch()
    own, shared = (1, 3, 16, 4), (1, 1, 16, 4)
    operands = [s.input(*shape) for shape in (own, shared, shared, own)]
    into = s.op(f"{ATTENTION}_backward", operands, own, shared, shared, ring=True)
    loops = [loop.name for loop in s.ops[-1].rule.loops]
    option = tuple({"d1": (0,), "s": (1,), "t": (1,)}.get(name, ()) for name in loops)
    graph = s.graph(into)
    asked = replace(graph, ops=tuple(replace(op, option=option) for op in graph.ops))
    found = plan(asked, Mesh.parse("2x2"), load_profile("h100-sxm"))
    assert found.analysis is not None
    assert validate(found.analysis.program).verdict == "equal"
    with pytest.raises(InvalidSharding, match="devices that run different code"):
        agree([found.analysis.program])


def test_half_precision_is_carried_in_32_bits() -> None:
    """On eight devices: an attention of bf16 is as exact as its own rounding, 2^-8 of a number, lets it be."""
    import jax.numpy as jnp

    from planner.export.shard_map import print_shard_map

    s, shape = Sketch("bf16"), (2, 64, 16)
    graph = s.graph(s.op(ATTENTION, [s.input(*shape) for _ in range(3)], shape, ring=True))
    program = ring_program("8", 0, graph)
    inputs = random_inputs(graph, np, "declared", seed=0)
    whole = run_whole(graph, inputs, np, precision="declared")[graph.outputs[0]]
    arguments = [inputs[name].astype(jnp.bfloat16) for name, _ in program.arguments]
    (((result,), _),) = on_eight_devices([(print_shard_map(program), arguments)])
    assert np.abs(result.astype("float64") - whole).max() <= 2**-7 * np.abs(whole).max()
