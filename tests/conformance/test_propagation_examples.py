"""The documents' worked examples end in the collectives and shards that the documents print (errata aside)."""

from __future__ import annotations

import pytest

from planner.ir.graph import Graph
from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.rewrite.propagation.propagate import propagate
from tests.testing.annotated_notation import lines, local, materialized, mlp, of, used, written
from tests.testing.documented_mlps import (
    BY_OPTIONS_2D,
    BY_VALUES_1D,
    BY_VALUES_2D,
    COMPLETED_1D,
    OPTIONS_2D,
    OUT_1D,
    X_1D,
)
from tests.testing.graphs import Sketch

BY_OPTION_1D = mlp(X_1D, OUT_1D)
# loops of the products: batch, m, k, n, and two linear ones
OPTION_1D: dict[str, Option] = {"n3": ((), (), (0,))}

COMPLETED_2D = [
    "%i0 to [[],[],[0,1,2]]",
    "%i0 to [[],[],[0]] for users",
    "%i1 to [[0],[1,2]] for users",
    "%n0 = matmul(%i0, %i1)",
    "%n0 to [[],[],[1,2]] partial=sum[0]",
    "%n1 = full()",
    "%n1 to [[],[],[]]",
    "%n0 to [[],[],[1,2]] for users",
    "%n1 to [[],[],[1,2]] for users",
    "%n2 = maximum(%n0, %n1)",
    "%n2 to [[],[],[1,2]]",
    "%n2 to [[],[],[1,2]] for users",
    "%i2 to [[1,2],[0]] for users",
    "%n3 = matmul(%n2, %i2)",
    "%n3 to [[],[],[0]] partial=sum[1,2]",
    "%n3 to [[],[],[0,1,2]] for users",
]
PROGRAM_1D = [
    "all_gather [0] dim 2 of i0",
    "matmul",
    "full",
    "all_slice [0] dim 2 of n1",
    "maximum",
    "matmul",
    "reduce_scatter [0] dim 2 of n3",
]
PROGRAM_2D = [
    "all_gather [1,2] dim 2 of i0",
    "matmul",
    "full",
    "all_reduce [0] of n0",
    "all_slice [1,2] dim 2 of n1",
    "maximum",
    "matmul",
    "reduce_scatter [1,2] dim 2 of n3",
]
# graph, options, mesh, completed, program, shards
EXAMPLES = [
    # conformance 72
    (
        BY_VALUES_1D,
        {},
        "2",
        COMPLETED_1D,
        PROGRAM_1D,
        {"i0": (2, 4, 4), "i1": (8, 16), "i2": (16, 8), "n3.1": (2, 4, 4)},
    ),
    # conformance 62, conformance 73
    (BY_OPTION_1D, OPTION_1D, "8", COMPLETED_1D, PROGRAM_1D, {"i0": (2, 4, 1), "i1": (8, 4), "i2": (4, 8)}),
    # conformance 74
    (BY_VALUES_2D, {}, "2x2x2", COMPLETED_2D, PROGRAM_2D, {"i0": (2, 4, 1), "i1": (4, 8), "i2": (8, 4)}),
    # conformance 68: by values or by op options, the same result
    (BY_OPTIONS_2D, OPTIONS_2D, "2x2x2", COMPLETED_2D, PROGRAM_2D, {"i0": (2, 4, 1), "i1": (4, 8), "i2": (8, 4)}),
]


@pytest.mark.parametrize(("graph", "options", "mesh", "completed", "program", "shards"), EXAMPLES)
def test_a_worked_example_ends_as_printed(
    graph: Graph,
    options: dict[str, Option],
    mesh: str,
    completed: list[str],
    program: list[str],
    shards: dict[str, tuple[int, ...]],
) -> None:
    found = propagate(graph, Mesh.parse(mesh), options)
    assert lines(found) == completed
    assert len(completed) == 16
    made = materialized(graph, Mesh.parse(mesh), found)
    assert written(made) == program
    assert {value: local(made, value) for value in shards} == shards


# conformance 72: replica_groups [[0,1]]; the result is that of the unknown mesh, whose size nothing needed
def test_groups_are_those_of_the_mesh_and_propagation_needs_no_size() -> None:
    assert Mesh.parse("2").groups((0,)).tolist() == [[0, 1]]
    assert lines(propagate(BY_VALUES_1D, Mesh.parse("?"))) == COMPLETED_1D
    assert lines(propagate(BY_VALUES_2D, Mesh.parse("?x?x?"))) == COMPLETED_2D


# conformance 81: elements a device after materialisation of the 2-D example
def test_a_device_holds_what_the_slides_count() -> None:
    mesh = Mesh.parse("2x2x2")
    made = materialized(BY_VALUES_2D, mesh, propagate(BY_VALUES_2D, mesh))
    shapes = {value: local(made, value) for value in ("i0", "i0.1", "i1", "i2", "n0")}
    assert shapes == {"i0": (2, 4, 1), "i0.1": (2, 4, 4), "i1": (4, 8), "i2": (8, 4), "n0": (2, 4, 8)}


# conformance 3.3.18
def test_the_mlp_of_upstream_needs_one_all_gather_and_one_all_reduce() -> None:
    sketch = Sketch()
    x, w1, w2 = sketch.input(512, 2048), sketch.input(2048, 1024), sketch.input(1024, 2048)
    active = sketch.op("sigmoid", [sketch.op("matmul", [x, w1], (512, 1024))], (512, 1024))
    asked = (of("i0", "[[],[0]]"), of("i1", "[[],[0]]"), of("i2", "[[0],[]]"), used("n2", "[[],[]]"))
    graph, mesh = sketch.graph(sketch.op("matmul", [active, w2], (512, 2048)), annotations=asked), Mesh.parse("4")
    made = materialized(graph, mesh, propagate(graph, mesh))
    assert written(made) == ["all_gather [0] dim 1 of i0", "matmul", "sigmoid", "matmul", "all_reduce [0] of n2"]
    assert [local(made, value) for value in ("i0", "i1", "i2")] == [(512, 512), (2048, 256), (256, 2048)]
