"""How partition writes a graph: arguments, slices, the collective that completes a split loop, halos kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.ir.collectives import Kind
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Reduction, Sharding, shard_shape
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import Execution, run_program
from planner.run.validate import validate
from tests.testing.annotated_notation import (
    elementwise,
    local,
    materialized,
    moves,
    of,
    product,
    sharding,
    used,
    written,
)
from tests.testing.graphs import Sketch

Shape = tuple[int, ...]
TWO = Mesh.parse("2")


def returned(size: int) -> Graph:
    """A tensor of `size` that is split, and returned as it is."""
    sketch = Sketch()
    x = sketch.input(size)
    return sketch.graph(x, annotations=(of(x, "[[0]]"),))


def partitioned(graph: Graph, mesh: Mesh, full: bool = False) -> Program:
    completed = propagate(graph, mesh)
    return materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh), full_arguments=full)


def ran(program: Program, array: Any) -> Execution:
    return run_program(program, {program.graph.inputs[0].id: array}, np, precision="f64")


# conformance 86: mesh 2, 8xf32 as [[0]] is an argument of 4xf32
def test_an_argument_that_is_split_already_is_its_shard() -> None:
    program = partitioned(returned(8), TWO)
    assert local(program, "i0") == (4,)
    assert program.instructions == ()
    assert [held[0].tolist() for held in ran(program, np.arange(8.0)).outputs] == [[0, 1, 2, 3], [4, 5, 6, 7]]


# conformance 87: the argument is 8xf32; a device takes 4 elements from its index times 4
@pytest.mark.parametrize(("size", "block"), [(8, 4), (7, 4)])
def test_a_whole_argument_is_sliced_at_the_devices_index_times_the_block(size: int, block: int) -> None:
    program = partitioned(returned(size), TWO, full=True)
    assert (local(program, "i0"), written(program)) == ((size,), ["all_slice [0] dim 0 of i0"])
    done = ran(program, np.arange(float(size)))
    for device, (held,) in enumerate(done.outputs):
        assert held.tolist() == list(range(device * block, min((device + 1) * block, size)))
    assert done.received.sum() == 0


# conformance 58: what is split, the collective that completes the result
COMPLETES = [
    ("[[],[0],[]]", 0, [Kind.ALL_GATHER]),
    ("[[0],[],[]]", 0, [Kind.ALL_GATHER]),
    ("[[],[],[0]]", 1, [Kind.ALL_GATHER]),
    ("[[],[],[0]]", 0, [Kind.ALL_REDUCE]),
    ("[[],[0],[]]", 1, [Kind.ALL_REDUCE]),
]


@pytest.mark.parametrize(("split", "operand", "kinds"), COMPLETES)
def test_a_parallel_loop_is_completed_by_a_gather_and_a_reduction_loop_by_a_reduce(
    split: str, operand: int, kinds: list[Kind]
) -> None:
    graph = product(used(f"i{operand}", split, "n0"), used("n0", "[[],[],[]]"))
    program = materialized(graph, TWO, propagate(graph, TWO))
    assert moves(program) == kinds
    assert validate(program, shrinking="none").verdict == "equal"


# conformance 43, conformance 69: of partial [0,1] a user that takes terms over 1 drops 0 alone
def test_partial_axes_that_the_user_keeps_are_not_reduced() -> None:
    graph, mesh = product(of("n0", "[[],[],[]] sum[0,1]"), used("n0", "[[],[],[]] sum[1]")), Mesh.parse("2x2")
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert written(program) == ["matmul", "all_reduce [0] of n0"]
    assert program.values[program.outputs[0]].sharding.partial == (1,)
    assert validate(program, shrinking="none").verdict == "equal"


# conformance 58: reductions other than sums
@pytest.mark.parametrize("kind", ["sum", "max", "min", "product"])
def test_a_reduction_loop_is_reduced_as_its_op_reduces(kind: str) -> None:
    sketch = Sketch()
    x = sketch.input(6, 4)
    made = sketch.op(kind, [x], (4,), dims=[0])
    graph = sketch.graph(made, annotations=(of(x, "[[0],[]]"), used(made, "[[]]")))
    program = partitioned(graph, TWO)
    assert moves(program) == [Kind.ALL_REDUCE]
    assert program.values[made].sharding.reduction is Reduction(kind)
    assert validate(program, shrinking="none").verdict == "equal"


# conformance 70: a constant that comes from outside is whole as well, until it is annotated; another input is not
@pytest.mark.parametrize(("kind", "layout"), [("constant", "[[],[]]"), ("parameter", "[[0],[]]")])
def test_a_bare_input_is_as_its_user_wants_it_and_a_constant_is_whole(kind: str, layout: str) -> None:
    sketch = Sketch()
    x, c = sketch.input(8, 16), sketch.input(8, 16)
    sketch.inputs[1] = replace(sketch.inputs[1], kind=kind)
    graph = sketch.graph(sketch.op("add", [x, c], (8, 16)), annotations=(of(x, "[[0],[]]"),))
    program = partitioned(graph, TWO)
    assert program.values[c].sharding == sharding(layout)
    assert moves(program) == [Kind.ALL_SLICE] * (kind == "constant")


# conformance 3.1: upstream refuses to partition what is not annotated throughout; here it is whole
def test_a_bare_graph_is_run_whole_by_every_device() -> None:
    graph = product()
    program = partitioned(graph, TWO)
    assert written(program) == ["matmul"]
    assert [local(program, value) for value in ("i0", "i1", "n0")] == [(2, 16, 8), (2, 8, 32), (2, 16, 32)]


# conformance 3.1: a dim that is broadcast is indexed by no loop; upstream's pass refuses to split it or crashes
def test_a_broadcast_dim_that_is_split_is_gathered_for_its_op() -> None:
    sketch = Sketch()
    x, row = sketch.input(8, 4), sketch.input(1, 4)
    graph = sketch.graph(sketch.op("add", [x, row], (8, 4)), annotations=(of(row, "[[0],[]]"), of(x, "[[0],[]]")))
    found = propagate(graph, TWO)
    assert found.definition("n0") == sharding("[[0],[]]")
    program = materialized(graph, TWO, found)
    assert written(program) == ["all_gather [0] dim 0 of i1", "add"]
    assert validate(program, shrinking="none").verdict == "equal"


# conformance 66: annotations become types (shards) and communication
def test_annotations_become_shards_and_communication() -> None:
    graph, mesh = elementwise(of("i0", "[[0],[]]"), of("n0", "[[],[1]]")), Mesh.parse("2x4")
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert written(program) == ["all_gather [0] dim 0 of i0", "all_slice [1] dim 1 of i0.1", "tanh"]
    assert [local(program, value) for value in ("i0", "i0.1", "i0.2", "n0")] == [(4, 16), (8, 16), (8, 4), (8, 4)]


# conformance 3.4: a definition and one of its users alike, the other user whole
def test_two_users_of_which_one_reads_the_definition_cost_one_gather() -> None:
    sketch = Sketch()
    x = sketch.input(2)
    one, other = (sketch.op("negate", [x], (2,)) for _ in range(2))
    asked = (of(x, "[[0]]"), used(x, "[[0]]", one), used(x, "[[]]", other))
    program = partitioned(sketch.graph(one, other, annotations=asked), TWO)
    assert written(program) == ["negate", "all_gather [0] dim 0 of i0", "negate"]


def chained(sharding: Sharding, shape: Shape) -> Graph:
    """Three elementwise ops, every value annotated alike."""
    sketch = Sketch()
    values = [sketch.input(*shape)]
    for op in ("tanh", "negate", "abs"):
        values.append(sketch.op(op, [values[-1]], shape))
    asked = [Annotation(value, sharding) for value in values]
    asked += [Annotation(value, sharding, user=f"n{place}") for place, value in enumerate(values[:-1])]
    return sketch.graph(values[-1], annotations=tuple(asked))


# conformance 3.4, conformance 27: 8x16 on 4 as [[0]] with halo [2,1]: no communication, shards 5x16
def test_elementwise_ops_in_a_row_keep_their_halos() -> None:
    mesh, wide = Mesh.parse("4"), Sharding(((0,), ()), halo_sizes=(2, 1))
    program = partitioned(chained(wide, (8, 16)), mesh)
    assert not [done for done in program.instructions if isinstance(done, Reshard)]
    assert {value.sharding for value in program.values.values()} == {wide}
    assert shard_shape(wide, (8, 16), mesh) == (5, 16)
    assert validate(program, shrinking="none").verdict == "equal"


# conformance 3.4, conformance 29: offsets are kept as well
def test_elementwise_ops_in_a_row_keep_their_offsets() -> None:
    uneven = Sharding(((0,), ()), sharded_dims_offsets=((0, 2, 3, 3, 8),))
    program = partitioned(chained(uneven, (8, 16)), Mesh.parse("4"))
    assert not [done for done in program.instructions if isinstance(done, Reshard)]
    assert validate(program, shrinking="none").verdict == "equal"


# mesh, source, target, local shapes of a tensor of 1200x1200, elements that a device between others receives
WIDENED = [
    # conformance 3.4, conformance 55
    ("4", Sharding(((0,), ())), Sharding(((0,), ()), halo_sizes=(2, 2)), (300, 1200), (304, 1200), 4 * 1200),
    (
        "4x4",
        Sharding(((0,), (1,))),
        Sharding(((0,), (1,)), halo_sizes=(1, 2, 3, 4)),
        (300, 300),
        (303, 307),
        303 * 307 - 300 * 300,
    ),
]


@pytest.mark.parametrize(("mesh", "source", "target", "before", "after", "received"), WIDENED)
def test_a_value_requested_with_a_halo_gets_its_neighbours_elements(
    mesh: str, source: Sharding, target: Sharding, before: Shape, after: Shape, received: int
) -> None:
    sketch, devices = Sketch(), Mesh.parse(mesh)
    x = sketch.input(1200, 1200)
    asked = (Annotation(x, source), Annotation(x, target, user="return"))
    program = partitioned(sketch.graph(x, annotations=asked), devices)
    assert (local(program, x), local(program, program.outputs[0])) == (before, after)
    inner = devices.devices // 2 + (len(devices.shape) > 1)
    done = ran(program, np.arange(1200.0**2).reshape(1200, 1200))
    assert done.received.sum(axis=0)[inner] == received * 4
    low = [int(coordinate) * 300 for coordinate in devices.coordinates[inner]]
    starts = [start - halo for start, halo in zip([*low, 0], target.halo_sizes[::2], strict=False)]
    rows = np.arange(starts[0], starts[0] + after[0])
    columns = np.arange(starts[1], starts[1] + after[1]) if len(starts) > 1 else np.arange(1200)
    assert (done.outputs[inner][0] == rows[:, None] * 1200 + columns).all()
