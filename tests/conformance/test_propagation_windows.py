"""Windows: operand maps c_i*d_i + c_j*d_j with at most one loop split (conformance 61)."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from planner.errors import InvalidRule, InvalidSharding
from planner.ir.binding import bind_rule
from planner.ir.graph import Annotation, Graph, Input, Op, TensorType
from planner.ir.indexing import LoopKind, Option
from planner.ir.mesh import Mesh
from planner.ir.notation import Dim, parse_rule
from planner.ir.program import Reshard
from planner.ops import bind_op
from planner.rewrite.propagation.propagate import propagate
from tests.testing.annotated_notation import materialized, of, sharding, used

CONV = "b (2*y+r) (x+s) c, r s c f -> b y x f"
MESH = Mesh.parse("2x4")
Shape = tuple[int, ...]


def test_a_window_prints_as_it_was_read() -> None:
    assert parse_rule(CONV).operands[0][1] == Dim(("y", "r"), coefficients=(2, 1))
    assert str(parse_rule(" b ( 2*y + 1*r ) (x+s) c , r s c f->b y x f")) == CONV
    assert str(parse_rule("(3*i+2*j+k) -> i; blocked j")) == "(3*i+2*j+k) -> i; blocked j"


# rule, what
REFUSED = [
    ("y -> (y+r)", "window in a result"),
    ("(0*y+r) -> y", "coefficient of a window"),
    ("(-1*y+r) -> y", "coefficient of a window"),
    ("(y*2+r) -> y", "coefficient of a window"),
    ("(y+y) -> y", "loop repeated in one term"),
    ("(y+) -> y", "not a loop name"),
]


# conformance 60, conformance 61
@pytest.mark.parametrize(("rule", "what"), REFUSED)
def test_a_wrong_window_is_refused(rule: str, what: str) -> None:
    with pytest.raises(InvalidRule, match=what):
        parse_rule(rule)


# rule, operands, results, sizes
SIZES: list[tuple[str, list[Shape], list[Shape], dict[str, int]]] = [
    (CONV, [(8, 9, 10, 3), (3, 3, 3, 16)], [(8, 4, 8, 16)], {"y": 4, "r": 3, "x": 8, "s": 3}),
    ("(y+r) -> y; size r=3", [(10,)], [(8,)], {"y": 8, "r": 3}),
    ("(2*y+3*r), r -> []", [(14,), (4,)], [()], {"r": 4, "y": 3}),
]


@pytest.mark.parametrize(("rule", "operands", "results", "sizes"), SIZES)
def test_a_window_is_as_wide_as_its_loops_reach(
    rule: str, operands: list[Shape], results: list[Shape], sizes: dict[str, int]
) -> None:
    found = bind_rule(rule, operands, results).sizes
    assert {loop: found[loop] for loop in sizes} == sizes


def test_less_than_a_step_at_the_end_of_a_dim_may_be_left_unread() -> None:
    assert bind_rule(CONV, [(8, 10, 10, 3), (3, 3, 3, 16)], [(8, 4, 8, 16)]).sizes["y"] == 4


def test_a_window_with_padding_may_reach_beyond_its_dim() -> None:
    assert bind_rule("(2*y+r-1), r -> y", [(8,), (3,)], [(4,)]).sizes == {"y": 4, "r": 3}


def test_a_window_that_does_not_fit_its_dim_is_refused() -> None:
    with pytest.raises(InvalidRule, match="shape contradicts the rule"):
        bind_rule(CONV, [(8, 11, 10, 3), (3, 3, 3, 16)], [(8, 4, 8, 16)])


def conv(*annotations: Annotation) -> Graph:
    """n0 = conv(i0, i1), stride 2 in y: 8x9x10x3, 3x3x3x16 -> 8x4x8x16."""
    kinds = [TensorType(shape, "f32") for shape in [(8, 9, 10, 3), (3, 3, 3, 16), (8, 4, 8, 16)]]
    rule = bind_op("conv", (kinds[0], kinds[1]), (kinds[2],), attrs={}, notation=CONV)
    op = Op("n0", "conv", ("i0", "i1"), (kinds[2],), rule, MappingProxyType({}), notation=CONV)
    inputs = tuple(Input(f"i{place}", "input", f"i{place}", kind) for place, kind in enumerate(kinds[:2]))
    return Graph("conv", inputs, (op,), ("n0",), annotations)


# annotation, what i0, i1 and n0 become
# conformance 61: i is split, k never; what the weight is split by its window's loop is gathered
COMPLETED = [
    (of("n0", "[[],[0],[],[]]"), "[[],[0],[],[]]", "[[],[],[],[]]", "[[],[0],[],[]]"),
    (of("i0", "[[1],[0],[],[]]"), "[[1],[0],[],[]]", "[[],[],[],[]]", "[[1],[0],[],[]]"),
    (of("i1", "[[],[],[],[1]]"), "[[],[],[],[]]", "[[],[],[],[1]]", "[[],[],[],[1]]"),
    (of("i1", "[[0],[],[],[1]]"), "[[],[],[],[]]", "[[],[],[],[1]]", "[[],[],[],[1]]"),
    (used("i0", "[[],[],[],[0]]", "n0"), "[[],[],[],[0]]", "[[],[],[0],[]]", "[[],[],[],[]] sum[0]"),
]


@pytest.mark.parametrize(("annotation", "image", "weight", "result"), COMPLETED)
def test_a_split_window_follows_its_first_loop(annotation: Annotation, image: str, weight: str, result: str) -> None:
    graph = conv(annotation)
    rule, option = graph.ops[0].rule, propagate(graph, MESH).options["n0"]
    assert [rule.operand_sharding(i, option) for i in (0, 1)] == [sharding(image), sharding(weight)]
    assert rule.result_sharding(0, option) == sharding(result)


# both loops of a window, or its minor loop; loops: b y r x s c f
OPTIONS: list[Option] = [((), (0,), (1,)), ((), (), (0,))]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_minor_loop_of_a_window_may_not_be_split(option: Option) -> None:
    rule = conv().ops[0].rule
    assert [loop.name for loop in rule.loops if loop.kind is LoopKind.BLOCKED] == ["r", "s"]
    with pytest.raises(InvalidSharding, match="loop r may not be split"):
        propagate(conv(), MESH, {"n0": option})


def test_an_exchange_brings_the_halo_that_a_split_window_reads() -> None:
    """Over two devices rows 0-4 and 5-8 are held, and rows 0-4 and 4-8 are read."""
    graph = conv(of("n0", "[[],[0],[],[]]"))
    program = materialized(graph, MESH, propagate(graph, MESH))
    moves = [done.collective for done in program.instructions if isinstance(done, Reshard)]
    assert [str(move) for move in moves] == ["exchange [0] to [[],[0],[],[]] halo_sizes=[1, 0]"]
    assert graph.ops[0].rule.is_allowed(((), (0,), (), (), (), (), ()), MESH)


def test_a_block_that_would_need_more_than_its_neighbour_holds_may_not_be_chosen() -> None:
    rule = bind_rule("(y+r), r -> y; size r=5", [(12,), (5,)], [(8,)])
    assert rule.is_allowed(((0,), ()), Mesh.parse("2"))
    assert not rule.is_allowed(((0,), ()), Mesh.parse("8"))
