"""The order in which propagation completes a graph, and the device ids of the collectives that result."""

from __future__ import annotations

import pytest

from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Reshard
from planner.ir.sharding import Sharding
from planner.rewrite.propagation.propagate import Traversal, propagate
from tests.testing.annotated_notation import chain, materialized, of, sharding
from tests.testing.documented_mlps import BY_VALUES_1D, BY_VALUES_2D

FIRST, SECOND = "[[0],[]]", "[[1],[]]"


def reached(graph: Graph, traversal: Traversal) -> list[Sharding | None]:
    found = propagate(graph, Mesh.parse("2x4"), traversal=traversal)
    return [found.definitions.get(value) for value in ("n0", "n1", "n2", "n3", "n4")]


# conformance 67
def test_backward_reaches_what_comes_before_and_forward_what_comes_after() -> None:
    """An op takes what is annotated around it, so a direction also reaches one op the other way."""
    graph, one = chain(of("n2", FIRST)), sharding(FIRST)
    assert reached(graph, "backward") == [one, one, one, one, None]
    assert reached(graph, "forward") == [None, None, one, one, one]
    assert reached(graph, "backward-forward") == [one] * 5


# conformance 67
def test_backward_comes_first_unless_asked_otherwise() -> None:
    graph = chain(of("i0", FIRST), of("n4", SECOND))
    assert propagate(graph, Mesh.parse("2x4")).definition("n1") == sharding(SECOND)
    assert reached(graph, "backward-forward") == [sharding(SECOND)] * 5
    assert reached(graph, "forward-backward") == [*[sharding(FIRST)] * 4, sharding(SECOND)]


# mesh, axes, replica groups
GROUPS = [
    # conformance 88
    ("2", (0,), [[0, 1]]),
    ("2x3", (0,), [[0, 3], [1, 4], [2, 5]]),
    ("2x3", (1,), [[0, 1, 2], [3, 4, 5]]),
    ("2x3", (1, 0), [[0, 3, 1, 4, 2, 5]]),
    ("2x2x2", (2, 0), [[0, 4, 1, 5], [2, 6, 3, 7]]),
]


@pytest.mark.parametrize(("mesh", "axes", "groups"), GROUPS)
def test_groups_list_device_ids_in_group_order(mesh: str, axes: tuple[int, ...], groups: list[list[int]]) -> None:
    assert Mesh.parse(mesh).groups(axes).tolist() == groups


# conformance 88
@pytest.mark.parametrize(
    ("graph", "mesh", "groups"),
    [
        (BY_VALUES_1D, "2", ["{0,1}"] * 3),
        (BY_VALUES_2D, "2x2x2", ["{0,1,2,3; 4,5,6,7}", "{0,4; 1,5; 2,6; 3,7}", *["{0,1,2,3; 4,5,6,7}"] * 2]),
    ],
)
def test_every_collective_of_a_partitioned_program_names_its_devices(
    graph: Graph, mesh: str, groups: list[str]
) -> None:
    program = materialized(graph, Mesh.parse(mesh), propagate(graph, Mesh.parse(mesh)))
    printed = [line.partition(" groups ")[2] for line in str(program).splitlines() if " groups " in line]
    assert printed == groups
    assert len(printed) == sum(isinstance(done, Reshard) for done in program.instructions)
