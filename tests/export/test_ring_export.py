"""Ops whose blocks travel, as jax.shard_map: JAX computes the graph's numbers and moves the predicted bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.choose.hardware import load_profile
from planner.errors import InvalidSharding
from planner.ir.mesh import Mesh
from planner.pipeline import plan
from planner.run.validate import validate
from tests.testing.graphs import Sketch
from tests.testing.jax_agreement import agree, is_even
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
