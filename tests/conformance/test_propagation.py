"""Annotations and the interface of an op: which annotations an op sees, and what it derives from them."""

from __future__ import annotations

import pytest

from planner.errors import InvalidGraph, InvalidRequest, InvalidRule, InvalidSharding, ShardplanError
from planner.ir.binding import bind_rule
from planner.ir.collectives import Kind
from planner.ir.execution_order import Reader
from planner.ir.graph import Annotation, Graph, TensorType
from planner.ir.indexing import LoopKind, Option
from planner.ir.mesh import Mesh
from planner.ir.notation import parse_rule
from planner.ir.sharding import Sharding
from planner.ops import bind_op
from planner.rewrite.annotations import collect_notes
from planner.rewrite.propagation.op_option import infer_default_option
from planner.rewrite.propagation.propagate import propagate
from tests.testing.annotated_notation import (
    addition,
    elementwise,
    fork,
    lines,
    local,
    materialized,
    mlp,
    moves,
    of,
    product,
    sharding,
    used,
    written,
)
from tests.testing.graphs import Sketch

MESH = Mesh.parse("2x4")
ONE, OTHER = "[[0],[]]", "[[1],[]]"

# conformance 35: result only, operand only, two operands, result and two users
VALID: list[tuple[tuple[Annotation, ...], int, int]] = [
    ((of("n0", ONE),), 1, 0),
    ((used("n0", ONE, "n1"),), 0, 1),
    ((used("n0", ONE, "n1"), used("n0", OTHER, "n2")), 0, 2),
    ((of("n0", "[[0],[1]]"), used("n0", ONE, "n1"), used("n0", OTHER, "n2")), 1, 2),
]


@pytest.mark.parametrize(("annotations", "definitions", "uses"), VALID)
def test_definition_and_uses_are_annotated_apart(
    annotations: tuple[Annotation, ...], definitions: int, uses: int
) -> None:
    found = collect_notes(fork(*annotations), MESH)
    assert (len(found.definitions), len(found.uses)) == (definitions, uses)
    kept = propagate(fork(*annotations), MESH).annotations()
    assert set(annotations) <= set(kept)


# conformance 36: what a graph can say of the undefined usages; those of a text's order are refused by its reader
UNDEFINED = [
    (of("n0", ONE), of("n0", OTHER)),
    (used("n0", ONE, "n1"), used("n0", OTHER, "n1")),
    (of("n0", ONE, required=False), of("n0", OTHER, required=False)),
    (used("n0", ONE, "n1", required=False), used("n0", OTHER, "n1", required=False)),
]


@pytest.mark.parametrize("annotations", UNDEFINED)
def test_two_shardings_of_one_definition_or_use_are_refused(annotations: tuple[Annotation, ...]) -> None:
    with pytest.raises((InvalidGraph, InvalidSharding)) as caught:
        propagate(fork(*annotations), MESH)
    assert "'n0'" in caught.value.where
    assert ONE in str(caught.value)
    assert OTHER in str(caught.value)


def test_the_same_annotation_twice_is_one() -> None:
    assert lines(propagate(fork(of("n0", ONE), of("n0", ONE)), MESH)) == lines(propagate(fork(of("n0", ONE)), MESH))


# conformance 37: hint and required annotation, who holds
HINTS = [
    ((of("n0", ONE, required=False),), "n0", ONE),
    ((of("n0", ONE, required=False), of("n0", OTHER)), "n0", OTHER),
    ((of("n0", ONE, required=False), used("n0", OTHER, "n1")), "n0", OTHER),
    ((of("n0", OTHER), used("n0", ONE, "n1", required=False)), "n1", OTHER),
    ((of("i0", ONE, required=False), of("n0", OTHER)), "n0", OTHER),
    ((used("i0", ONE, "n0", required=False), of("n0", OTHER)), "n0", OTHER),
    ((used("n0", ONE, "n1", required=False), used("n0", OTHER, "n2", required=False)), "n0", OTHER),
]


@pytest.mark.parametrize(("annotations", "value", "kept"), HINTS)
def test_a_hint_holds_until_a_required_annotation_says_otherwise(
    annotations: tuple[Annotation, ...], value: str, kept: str
) -> None:
    assert propagate(fork(*annotations), MESH).definition(value) == sharding(kept)


def test_a_use_hinted_otherwise_is_read_as_the_op_needs_it() -> None:
    found = propagate(elementwise(used("i0", ONE, "n0", required=False), of("n0", OTHER)), MESH)
    assert found.use(Reader(0, 0)) == sharding(OTHER)


# conformance 38: the RFC's three annotations: op0 makes [[0],[1]], op1 reads [[0]], op2 reads [[1]]
def test_definition_and_two_uses_differ() -> None:
    asked = (of("n0", "[[0],[1]]"), used("n0", "[[0]]", "n1"), used("n0", "[[1]]", "n2"))
    found = propagate(fork(*asked), MESH)
    assert found.definition("n0") == sharding("[[0],[1]]")
    assert [found.use(Reader(place, 0)) for place in (1, 2)] == [sharding(ONE), sharding(OTHER)]
    assert [found.definition(value) for value in ("n1", "n2")] == [sharding(ONE), sharding(OTHER)]


# conformance 58, conformance 59: op, shapes of operands and result, attributes; kinds of its loops, its maps
INTERFACE: list[tuple[str, list[tuple[int, ...]], dict[str, object], list[str], list[str]]] = [
    ("maximum", [(2, 4, 32)] * 3, {}, ["parallel"] * 3, ["a b c"] * 3),
    (
        "matmul",
        [(2, 4, 8), (8, 32), (2, 4, 32)],
        {},
        ["parallel", "parallel", "reduction", "parallel"],
        ["a b c", "c d", "a b d"],
    ),
    ("sum", [(4, 8), (4,)], {"dims": [1]}, ["parallel", "reduction"], ["a b", "a"]),
    ("softmax", [(4, 8)] * 2, {"dim": 1}, ["parallel", "blocked"], ["a b"] * 2),
]


@pytest.mark.parametrize(("op", "shapes", "attrs", "kinds", "maps"), INTERFACE)
def test_an_op_has_loops_and_indexing_maps(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, object], kinds: list[str], maps: list[str]
) -> None:
    types = [TensorType(shape, "f32") for shape in shapes]
    rule = bind_op(op, tuple(types[:-1]), (types[-1],), attrs=attrs, notation=None)
    loops = [loop for loop in rule.loops if loop.kind is not LoopKind.LINEAR]
    assert [loop.kind.value for loop in loops] == kinds
    letters = {loop.name: letter for loop, letter in zip(loops, "abcd", strict=False)}
    terms = [" ".join(letters[dim.loops[0]] for dim in term) for term in (*rule.operands, *rule.results)]
    assert terms == maps
    assert {letters[name]: size for name, size in rule.sizes.items()} == {
        letter: size
        for term, shape in zip(maps, shapes, strict=True)
        for letter, size in zip(term.split(), shape, strict=True)
    }


# conformance 60: a result's map is a projected permutation
@pytest.mark.parametrize(("rule", "what"), [("a b -> a a", "loop repeated"), ("a b -> (a+b)", "window in a result")])
def test_a_result_indexes_a_loop_once_and_alone(rule: str, what: str) -> None:
    with pytest.raises(InvalidRule, match=what):
        parse_rule(rule)


def softmax(*annotations: Annotation) -> Graph:
    sketch = Sketch()
    return sketch.graph(sketch.op("softmax", [sketch.input(8, 8)], (8, 8), dim=1), annotations=annotations)


# conformance 58: an invalid loop may not be split
def test_a_loop_that_may_not_be_split_is_gathered_and_no_other() -> None:
    graph = softmax(of("i0", "[[0],[1]]"))
    assert moves(materialized(graph, MESH, propagate(graph, MESH))) == [Kind.ALL_GATHER]
    assert propagate(graph, MESH).definition("n0") == sharding(ONE)


# options that an op cannot have, part of the message
REFUSED: list[tuple[Graph, dict[str, Option], type[ShardplanError], str]] = [
    (softmax(), {"n0": ((), (0,))}, InvalidSharding, "loop d1 may not be split over these axes"),
    (softmax(), {"n0": ((0,), (0,))}, InvalidSharding, "mesh axis duplicated"),
    (softmax(), {"n0": ((2,), ())}, InvalidSharding, "mesh axis out of range"),
    (softmax(), {"n0": ((), (), ())}, InvalidSharding, "more lists than loops"),
    (softmax(), {"n9": ()}, InvalidGraph, "option of no node"),
]


@pytest.mark.parametrize(("graph", "options", "error", "message"), REFUSED)
def test_an_option_that_the_op_cannot_have_is_refused(
    graph: Graph, options: dict[str, Option], error: type[ShardplanError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        propagate(graph, MESH, options)
    assert "node 'n" in str(caught.value) or "n9" in str(caught.value)


def test_an_unknown_traversal_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="backward-forward"):
        propagate(softmax(), MESH, traversal="sideways")  # type: ignore[arg-type]


# conformance 62: the option of the op is returned as is, whatever is annotated around it
def test_an_option_wins_over_annotations() -> None:
    graph = addition(of("i0", ONE), of("n0", OTHER))
    found = propagate(graph, MESH, {"n0": ((), (0,))})
    assert found.options["n0"] == ((), (0,), ())
    assert [found.definition(value) for value in ("i0", "n0")] == [sharding(ONE), sharding(OTHER)]
    assert found.use(Reader(0, 0)) == sharding("[[],[0]]")
    assert moves(materialized(graph, MESH, found)) == [Kind.ALL_TO_ALL, Kind.ALL_GATHER, Kind.ALL_SLICE]


# conformance 63: rule, operands, results, axes per loop
DOT = "b m k, k n -> b m n"
OPTIONS: list[tuple[str, list[Sharding | None], list[Sharding | None], Option]] = [
    ("results", [None, None], [sharding("[[0],[],[1]]")], ((0,), (), (), (1,))),
    ("reduction loops from operands", [sharding("[[],[],[0]]"), None], [None], ((), (), (0,), ())),
    (
        "parallel loops the result leaves open",
        [sharding("[[0]]"), None],
        [sharding("[[],[],[1]]")],
        ((0,), (), (), (1,)),
    ),
    ("partial axes to the first reduction loop", [None, None], [sharding("[[],[],[1]] sum[0]")], ((), (), (0,), (1,))),
    ("nothing", [None, None], [None], ((), (), (), ())),
]


@pytest.mark.parametrize(("what", "operands", "results", "option"), OPTIONS)
def test_results_are_read_first_and_operands_fill_the_rest(
    what: str, operands: list[Sharding | None], results: list[Sharding | None], option: Option
) -> None:
    rule = bind_rule(DOT, [(2, 4, 8), (8, 32)], [(2, 4, 32)])
    assert infer_default_option(rule, MESH, operands, results=results) == option, what


# conformance 64: two lists on one loop, one axis on two loops
@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (("[[],[],[0]]", "[[1],[]]"), "two lists of axes on loop k"),
        (("[[0],[],[]]", "[[],[0]]"), "one axis on two loops"),
    ],
)
def test_contradicting_shardings_imply_no_option(operands: tuple[str, str], message: str) -> None:
    rule = bind_rule(DOT, [(2, 4, 8), (8, 32)], [(2, 4, 32)])
    with pytest.raises(InvalidSharding, match=message):
        infer_default_option(rule, MESH, [sharding(text) for text in operands], results=[None])


# conformance 65: [[],[],[1,2],[0]] over b m n k leaves [[],[],[1,2]] partial over 0; what is annotated stays
def test_missing_annotations_are_filled_in_and_reduction_loops_are_partial() -> None:
    graph, mesh = product(of("n0", "[[],[1,2],[]]")), Mesh.parse("2x2x2")
    found = propagate(graph, mesh, {"n0": ((), (), (0,), (1, 2))})
    assert found.definition("n0") == sharding("[[],[1,2],[]]")
    assert found.use(Reader(0, 0)) == sharding("[[],[],[0]]")
    bare = propagate(product(), mesh, {"n0": ((), (), (0,), (1, 2))})
    assert bare.definition("n0") == sharding("[[],[],[1,2]] sum[0]")


# conformance 66, conformance 67: annotations become types; backward reaches the inputs, forward the outputs
def test_the_whole_graph_is_completed_from_its_middle() -> None:
    graph = fork(of("n0", ONE))
    found = propagate(graph, MESH)
    assert {value: found.definition(value) for value in ("i0", "n0", "n1", "n2")} == dict.fromkeys(
        ("i0", "n0", "n1", "n2"), sharding(ONE)
    )
    assert local(materialized(graph, MESH, found), "n2") == (4, 16)


# conformance 69: all_reduce for dropped partial axes
def test_a_partial_definition_is_reduced_for_its_user() -> None:
    graph, mesh = product(of("n0", "[[],[],[1,2]] sum[0]"), used("n0", "[[],[],[1,2]]")), Mesh.parse("2x2x2")
    assert written(materialized(graph, mesh, propagate(graph, mesh))) == ["matmul", "all_reduce [0] of n0"]


# conformance 70: a constant is whole and its user slices it; annotated, it is made in parts: 2x4x32 -> 2x4x16
def test_a_constant_is_whole_unless_it_is_annotated() -> None:
    mesh = Mesh.parse("2")
    whole = mlp(of("n2", "[[],[],[0]]"))
    made = materialized(whole, mesh, propagate(whole, mesh))
    assert "all_slice [0] dim 2 of n1" in written(made)
    assert (local(made, "n1"), local(made, "n1.1")) == ((2, 4, 32), (2, 4, 16))
    parts = mlp(of("n1", "[[],[],[0]]"))
    made = materialized(parts, mesh, propagate(parts, mesh))
    assert local(made, "n1") == (2, 4, 16)
    assert Kind.ALL_SLICE not in moves(made)


# conformance 71: from the definition to the last annotation of the use at once
def test_a_reshard_skips_annotations_in_between() -> None:
    graph = elementwise(of("i0", "[[],[0,1]]"), used("i0", "[[],[0]]", "n0"))
    made = materialized(graph, MESH, propagate(graph, MESH))
    assert written(made) == ["all_gather [1] dim 1 of i0", "tanh"]
    graph = elementwise(of("i0", "[[],[0,1]]"), used("i0", "[[0,1],[]]", "n0"))
    made = materialized(graph, MESH, propagate(graph, MESH, {"n0": ((), (0,))}))
    assert written(made) == ["all_gather [1] dim 1 of i0", "tanh"]


def test_completing_twice_changes_nothing() -> None:
    graph = mlp(of("i0", "[[],[],[0]]"), of("n3", "[[],[],[]] sum[0]"), used("n3", "[[],[],[0]]"))
    found = propagate(graph, MESH)
    again = Graph(graph.name, graph.inputs, graph.ops, graph.outputs, found.annotations())
    assert str(propagate(again, MESH)) == str(found)
