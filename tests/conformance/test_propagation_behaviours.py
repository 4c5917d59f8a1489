"""Propagation case by case (conformance 3.3.1 to 3.3.17), and where it refuses."""

from __future__ import annotations

import pytest

from planner.errors import InvalidSharding
from planner.ir.collectives import Kind
from planner.ir.execution_order import Reader
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.rewrite.propagation.propagate import Traversal, propagate
from tests.testing.annotated_notation import (
    addition,
    elementwise,
    fork,
    lines,
    local,
    materialized,
    moves,
    of,
    product,
    sharding,
    used,
)
from tests.testing.graphs import Sketch

BOTH = "[[0],[1]]"
TANH = "%n0 = tanh(%i0)"
DOT = "%n0 = matmul(%i0, %i1)"
# graph, completed annotations on 2x4
COMPLETED = [
    # conformance 3.3.1
    (elementwise(), [TANH]),
    # conformance 3.3.2
    (elementwise(of("n0", BOTH)), [f"%i0 to {BOTH} for users", TANH, f"%n0 to {BOTH}"]),
    # conformance 3.3.3
    (elementwise(used("i0", BOTH, "n0")), [f"%i0 to {BOTH} for users", TANH, f"%n0 to {BOTH}"]),
    # conformance 3.3.4
    (
        elementwise(used("n0", BOTH)),
        [f"%i0 to {BOTH} for users", TANH, f"%n0 to {BOTH}", f"%n0 to {BOTH} for users"],
    ),
    # conformance 3.3.5
    (
        elementwise(of("i0", BOTH)),
        [f"%i0 to {BOTH}", f"%i0 to {BOTH} for users", TANH, f"%n0 to {BOTH}"],
    ),
    # conformance 3.3.6
    (
        fork(of("n2", BOTH)),
        [
            f"%i0 to {BOTH} for users",
            TANH,
            f"%n0 to {BOTH}",
            f"%n0 to {BOTH} for users",
            "%n1 = abs(%n0)",
            f"%n1 to {BOTH}",
            f"%n0 to {BOTH} for users",
            "%n2 = negate(%n0)",
            f"%n2 to {BOTH}",
        ],
    ),
    # conformance 3.3.7
    (
        product(of("n0", "[[0],[1],[]]")),
        ["%i0 to [[0],[1],[]] for users", "%i1 to [[0],[],[]] for users", DOT, "%n0 to [[0],[1],[]]"],
    ),
    # conformance 3.3.8
    (
        product(of("n0", "[[],[1],[]] sum[0]")),
        ["%i0 to [[],[1],[0]] for users", "%i1 to [[],[0],[]] for users", DOT, "%n0 to [[],[1],[]] partial=sum[0]"],
    ),
    # conformance 3.3.9
    (
        product(used("i0", "[[],[1],[0]]", "n0")),
        ["%i0 to [[],[1],[0]] for users", "%i1 to [[],[0],[]] for users", DOT, "%n0 to [[],[1],[]] partial=sum[0]"],
    ),
    # conformance 3.3.10
    (
        product(used("i0", "[[],[1],[0]]", "n0"), used("i1", "[[],[0],[]]", "n0")),
        ["%i0 to [[],[1],[0]] for users", "%i1 to [[],[0],[]] for users", DOT, "%n0 to [[],[1],[]] partial=sum[0]"],
    ),
    # conformance 3.3.11
    (
        product(of("n0", "[[],[0],[1]]")),
        ["%i0 to [[],[0],[]] for users", "%i1 to [[],[],[1]] for users", DOT, "%n0 to [[],[0],[1]]"],
    ),
    # conformance 3.3.12: the result wins, the operand is resharded for the op
    (
        addition(of("i0", "[[0],[]]"), of("n0", "[[],[]]")),
        [
            "%i0 to [[0],[]]",
            "%i0 to [[],[]] for users",
            "%i1 to [[],[]] for users",
            "%n0 = add(%i0, %i1)",
            "%n0 to [[],[]]",
        ],
    ),
    # conformance 3.3.12: on a tie the first operand's
    (
        addition(of("i0", "[[0],[]]"), of("i1", "[[1],[]]")),
        [
            "%i0 to [[0],[]]",
            "%i1 to [[1],[]]",
            "%i0 to [[0],[]] for users",
            "%i1 to [[0],[]] for users",
            "%n0 = add(%i0, %i1)",
            "%n0 to [[0],[]]",
        ],
    ),
    # conformance 3.3.14: of two users' annotations the last is the definition, for the other it is resharded
    (
        fork(used("n0", "[[0],[]]", "n1"), used("n0", "[[1],[]]", "n2")),
        [
            "%i0 to [[1],[]] for users",
            TANH,
            "%n0 to [[1],[]]",
            "%n0 to [[0],[]] for users",
            "%n1 = abs(%n0)",
            "%n1 to [[0],[]]",
            "%n0 to [[1],[]] for users",
            "%n2 = negate(%n0)",
            "%n2 to [[1],[]]",
        ],
    ),
]


@pytest.mark.parametrize(("graph", "completed"), COMPLETED)
def test_annotations_are_completed(graph: Graph, completed: list[str]) -> None:
    assert lines(propagate(graph, Mesh.parse("2x4"))) == completed
    assert lines(propagate(graph, Mesh.parse("?x?"))) == completed


# conformance 3.3.14
def test_two_users_that_want_different_shardings_cost_one_exchange() -> None:
    graph, mesh = fork(used("n0", "[[0],[]]", "n1"), used("n0", "[[],[0]]", "n2")), Mesh.parse("2")
    assert moves(materialized(graph, mesh, propagate(graph, mesh))) == [Kind.ALL_TO_ALL]


# explicit annotations that contradict each other around one op, part of the message
CONFLICTS = [
    # conformance 3.3.13, conformance 64
    (
        addition(used("i0", "[[0],[]]", "n0"), used("i1", "[[1],[]]", "n0")),
        "two lists of axes on loop _1 (got [1] after [0]",
    ),
    (addition(used("i0", "[[],[0]]", "n0"), used("i1", "[[0],[]]", "n0")), "one axis on two loops"),
    # conformance 64
    (product(of("n0", "[[],[0],[]]"), used("i1", "[[],[0],[]]", "n0")), "one axis on two loops"),
    (
        product(of("n0", "[[],[],[]] sum[1]"), used("i1", "[[],[0],[]]", "n0")),
        "does not leave the result partial over these axes",
    ),
    (product(of("n0", "[[],[],[]] max[0]")), "no max loop leaves the result partial"),
    (elementwise(of("n0", "[[],[]] sum[0]")), "no sum loop leaves the result partial"),
]


@pytest.mark.parametrize(("graph", "message"), CONFLICTS)
def test_a_conflict_is_an_error_that_names_the_op(graph: Graph, message: str) -> None:
    with pytest.raises(InvalidSharding) as caught:
        propagate(graph, Mesh.parse("2x4"))
    assert caught.value.where.startswith("node 'n0'")
    assert message in str(caught.value)


# conformance 65: what is annotated stays, also where the op, by an option of its own, does not follow it
def test_a_required_use_stays_where_its_op_reads_otherwise() -> None:
    graph, mesh = elementwise(used("i0", "[[0],[]]", "n0")), Mesh.parse("2x4")
    found = propagate(graph, mesh, {"n0": ((), (0,))})
    assert lines(found) == ["%i0 to [[0],[]] for users", TANH, "%n0 to [[],[0]]"]
    assert moves(materialized(graph, mesh, found)) == [Kind.ALL_TO_ALL]


# conformance 37: a use that follows from a requirement decides before a hint that was annotated later
def test_consequences_of_a_requirement_come_before_a_hint() -> None:
    hints = used("n0", "[[0],[]]", "n1", required=False), used("n0", "[[1],[]]", required=False)
    sketch = Sketch()
    made = sketch.op("tanh", [sketch.input(8, 16)], (8, 16))
    last = sketch.op("abs", [made], (8, 16))
    graph = sketch.graph(last, made, annotations=(*hints, of(last, "[[0],[]]")))
    assert propagate(graph, Mesh.parse("2x4")).definition("n0") == sharding("[[0],[]]")


# conformance 63: an empty list claims nothing but contradicts; lists after the last split dim are not there at all
def test_a_dim_after_the_last_split_one_is_not_mentioned() -> None:
    mesh = Mesh.parse("2x4")
    after = addition(used("i0", "[[],[1]]", "n0"), used("i1", "[[0],[]]", "n0"))
    assert propagate(after, mesh).options["n0"][:2] == ((0,), (1,))
    before = addition(used("i0", "[[0],[]]", "n0"), used("i1", "[[],[1]]", "n0"))
    with pytest.raises(InvalidSharding, match="two lists of axes on loop"):
        propagate(before, mesh)


# conformance 3.3.12: explicit on both sides, but not on one loop at once: the op follows the operand (class c)
def test_explicit_annotations_that_disagree_are_both_kept_and_resharded_between() -> None:
    graph = elementwise(used("i0", "[[0],[]]", "n0"), of("n0", "[[],[]]"))
    mesh = Mesh.parse("2")
    found = propagate(graph, mesh)
    assert (found.use(Reader(0, 0)), found.definition("n0")) == (sharding("[[0],[]]"), sharding("[[],[]]"))
    assert found.options["n0"][:2] == ((0,), ())
    assert moves(materialized(graph, mesh, found)) == [Kind.ALL_GATHER]


def chain(*annotations: Annotation) -> Graph:
    """n0 = tanh(i0), n1 = abs(n0), n2 = negate(n1); 8x16."""
    sketch = Sketch()
    value = sketch.input(8, 16)
    for op in ("tanh", "abs", "negate"):
        value = sketch.op(op, [value], (8, 16))
    return sketch.graph(value, annotations=annotations)


EARLY_LATE = chain(of("i0", "[[0],[]]"), of("n2", "[[1],[]]"))
EARLY, MIDDLE, LATE = (chain(of(value, "[[0],[]]")) for value in ("n0", "n1", "n2"))
# graph, traversal, axes that split dim 0 of i0, n0, n1, n2 where anything reached them
# conformance 3.3.15
TRAVERSALS: list[tuple[Graph, Traversal, list[int | None]]] = [
    (EARLY, "backward", [None, 0, 0, None]),
    (EARLY, "forward", [None, 0, 0, 0]),
    (LATE, "backward", [None, 0, 0, 0]),
    (LATE, "forward", [None, None, None, 0]),
    (MIDDLE, "backward-forward", [None, 0, 0, 0]),
    (MIDDLE, "forward-backward", [None, 0, 0, 0]),
    (EARLY_LATE, "backward-forward", [0, 1, 1, 1]),
    (EARLY_LATE, "forward-backward", [0, 0, 0, 1]),
]


@pytest.mark.parametrize(("graph", "traversal", "axes"), TRAVERSALS)
def test_the_traversal_decides_between_competing_annotations(
    graph: Graph, traversal: Traversal, axes: list[int | None]
) -> None:
    found = propagate(graph, Mesh.parse("2x4"), traversal=traversal)
    held = [found.definitions.get(value) for value in ("i0", "n0", "n1", "n2")]
    assert [None if one is None else one.split_axes[0][0] for one in held] == axes


def reduced(dims: list[int], *annotations: Annotation) -> Graph:
    sketch = Sketch()
    shape = tuple(6 for dim in range(2) if dim not in dims)
    return sketch.graph(sketch.op("sum", [sketch.input(6, 6)], shape, dims=dims), annotations=annotations)


# conformance 3.3.16, conformance 3.3.17
def test_a_tensor_without_dims_is_whole_and_reduced_where_its_loops_are_split() -> None:
    graph, mesh = reduced([0, 1], of("i0", "[[0],[]]"), used("n0", "[]")), Mesh.parse("2")
    found = propagate(graph, mesh)
    assert found.definition("n0") == sharding("[] sum[0]")
    made = materialized(graph, mesh, found)
    assert moves(made) == [Kind.ALL_REDUCE]
    assert (local(made, "i0"), local(made, "n0.1")) == ((3, 6), ())
    assert propagate(reduced([0, 1], used("n0", "[]")), mesh).use(Reader(0, 0)) == sharding("[[],[]]")


# conformance 3.3.17
def test_a_reduction_of_a_whole_dim_needs_no_collective() -> None:
    graph, mesh = reduced([1], of("i0", "[[0],[]]")), Mesh.parse("2")
    found = propagate(graph, mesh)
    assert found.definition("n0") == sharding("[[0]]")
    assert moves(materialized(graph, mesh, found)) == []
