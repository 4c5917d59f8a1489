"""The solver's problem has the program's costs and memory, and its optimum is the best of all programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.choose.options import distinct_options, enumerate_options
from planner.choose.variables import Role
from planner.ir.execution_order import find_readers
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Reshard
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.pipeline import write_program
from tests.testing import exhaustive
from tests.testing.all_programs import every_program
from tests.testing.graphs import Sketch, random_graph, small_transformer
from tests.testing.op_options import priced
from tests.testing.random_strategies import random_strategies
from tests.testing.seeds import seeds
from tests.testing.small_graphs import (
    convolved,
    one_unread_result,
    output_twice,
    partial_sums,
    product_and_relu,
    read_and_returned,
    ring,
    shared_input,
    shared_result,
    square,
    two_results,
    vectors,
)

EVERYTHING: list[tuple[Callable[[], Graph], str]] = [
    (product_and_relu, "2"),
    (shared_input, "2"),
    (shared_input, "3"),
    (shared_result, "2"),
    (square, "2"),
    (two_results, "2"),
    (one_unread_result, "2x2"),
    (vectors, "2x2"),
    (partial_sums, "2x2"),
    (output_twice, "2x2"),
    (read_and_returned, "2"),
    (convolved, "2"),
    (ring, "2"),
]
IDS = [f"{graph.__name__} {mesh}" for graph, mesh in EVERYTHING]
# Seconds each, and with their like on fewer devices below.
LONG = (vectors, partial_sums, output_twice)
TRIED = [pytest.param(*case, marks=pytest.mark.slow if case[0] in LONG else ()) for case in EVERYTHING]


def model_of(mesh: str) -> CostModel:
    return CostModel(Mesh.parse(mesh), load_profile("cpu"))


def rounds(graph: Graph) -> bool:
    """Whether the count of bytes is cautious: a shared graph input, or a last reader that reads twice."""
    inputs = {entry.id for entry in graph.inputs}
    shared = {value: who for value, who in find_readers(graph).items() if len(who) > 1}
    return any(value in inputs or who[-1].op == who[-2].op for value, who in shared.items())


@pytest.mark.parametrize(("make", "mesh"), TRIED, ids=IDS)
def test_the_optimum_is_that_of_trying_every_program(make: Callable[[], Graph], mesh: str) -> None:
    graph = make()
    question = formulate(graph, model_of(mesh))
    tried = list(every_program(graph, question))
    assert solvers.solve(question.problem).cost == min(time for time, _ in tried)
    peaks = sorted({peak for _, peak in tried})
    for limit in (peaks[0], peaks[len(peaks) // 3], peaks[len(peaks) // 2], peaks[0] - 1):
        wanted = min((time for time, peak in tried if peak <= limit), default=None)
        found = solvers.solve(replace_limit(question, limit))
        if rounds(graph):
            assert found.cost is None or (wanted is not None and found.cost >= wanted)
        else:
            assert found.cost == wanted, f"limit {limit}"


def replace_limit(question: Formulation, limit: int | None) -> solvers.Problem:
    return solvers.Problem(question.problem.nodes, question.problem.edges, limit)


@pytest.mark.parametrize("mesh", ["2", "3"])
@pytest.mark.parametrize("make", [vectors, output_twice, partial_sums, one_unread_result])
def test_the_solver_finds_what_its_own_oracle_finds(make: Callable[[], Graph], mesh: str) -> None:
    question = formulate(make(), model_of(mesh))
    least = exhaustive.find_min_peak(question.problem)
    assert least is not None
    for limit in (None, least, least * 5 // 4, least - 1):
        problem = replace_limit(question, limit)
        best = exhaustive.find_cheapest(problem)
        assert solvers.solve(problem).cost == (best and best[1].cost)


RANDOM = seeds(24)
RANDOM_MESHES = ["2", "2x2", "3", "4x2", "2x2x2", "1x3"]


@pytest.mark.parametrize("seed", RANDOM)
def test_any_choice_costs_and_holds_what_its_program_does(seed: int) -> None:
    graph = random_graph(seed, 6, (6, 8, 7, 1))
    question = formulate(graph, model_of(RANDOM_MESHES[seed % len(RANDOM_MESHES)]))
    random, cautious = np.random.default_rng(seed), rounds(graph)
    for _ in range(6):
        chosen = random_strategies(question, random)
        found = Analysis(write_program(question, question.decode(chosen)), question.model)
        told = solvers.evaluate(question.problem, chosen)
        assert told.cost == found.step_ps
        assert told.peak == found.peak_bytes or (cautious and told.peak > found.peak_bytes)


def test_random_graphs_meet_both_exact_and_cautious_counts() -> None:
    assert {rounds(random_graph(seed, 6, (6, 8, 7, 1))) for seed in range(24)} == {True, False}


@pytest.mark.parametrize("make", [convolved, product_and_relu, shared_result, square, two_results, vectors])
@pytest.mark.parametrize("mesh", ["2x2", "2x2x2"])
def test_equal_options_are_represented_by_the_cheapest(make: Callable[[], Graph], mesh: str) -> None:
    graph, model = make(), model_of(mesh)
    for op in graph.ops:
        kinds = tuple(graph.types[value] for value in op.inputs)
        best: dict[object, int] = {}
        for option in enumerate_options(op.rule, model.mesh):
            seen = (
                tuple(op.rule.read_sharding(i, option, model.mesh) for i in range(len(kinds))),
                tuple(op.rule.result_sharding(i, option) for i in range(len(op.results))),
            )
            best[seen] = min(best.get(seen, 1 << 60), model.op_ps(op, kinds, option))
        told = {(read, made): cost for _, cost, read, made in priced(distinct_options(op, kinds, model))}
        assert list(told.items()) == list(best.items())


def test_ops_that_differ_in_how_much_they_do_have_prices_of_their_own() -> None:
    sketch, model = Sketch(), model_of("2")
    ends = [sketch.input(2, 4, 256, 64) for _ in range(3)]
    made = [sketch.op("scaled_dot_product_attention", ends, (2, 4, 256, 64), causal=causal) for causal in (False, True)]
    question = formulate(sketch.graph(*made), model)
    for op in question.graph.ops:
        variable = question.variables[question.index[Role.OP, op.id]]
        kinds = tuple(question.graph.types[value] for value in op.inputs)
        assert variable.costs.tolist() == [model.op_ps(op, kinds, option) for option in variable.options]


def best_program(graph: Graph, mesh: str) -> Analysis:
    question = formulate(graph, model_of(mesh))
    choice = solvers.solve(question.problem).assignment
    assert choice is not None
    return Analysis(write_program(question, question.decode(choice)), question.model)


def pinned(graph: Graph, *annotations: Annotation) -> Graph:
    return replace(graph, annotations=annotations)


def test_a_reshard_that_several_readers_need_is_paid_once() -> None:
    s = Sketch()
    x = s.input(512, 512)
    made = [s.op("softmax", [x], (512, 512), dim=0) for _ in range(3)]
    graph = pinned(s.graph(*made), Annotation("i0", Sharding(((0,), ()))))
    moves = [done for done in best_program(graph, "2").program.instructions if isinstance(done, Reshard)]
    assert [str(move.collective) for move in moves] == ["all_to_all [0] dim 0 -> 1"]


def test_one_device_needs_no_collective() -> None:
    for mesh in ("1", "1x1"):
        found = best_program(small_transformer(Mesh.parse(mesh)), mesh)
        assert not [done for done in found.program.instructions if isinstance(done, Reshard)]


@pytest.mark.parametrize("make", [product_and_relu, shared_input, shared_result, two_results])
def test_a_tighter_memory_limit_never_lowers_the_cost(make: Callable[[], Graph]) -> None:
    question = formulate(make(), model_of("2x2"))
    free = solvers.solve(question.problem)
    assert free.assignment is not None
    assert free.cost is not None
    before, limit = free.cost, solvers.evaluate(question.problem, free.assignment).peak
    for _ in range(5):
        limit = limit * 9 // 10
        found = solvers.solve(replace_limit(question, limit))
        if found.cost is None:
            break
        assert found.cost >= before
        before = found.cost


@pytest.mark.parametrize("seed", [1, 5, 8, 13])
def test_names_and_the_order_of_independent_ops_change_no_cost(seed: int) -> None:
    graph = random_graph(seed, 5)
    named = replace(
        graph,
        inputs=tuple(replace(i, id=f"x_{i.id}") for i in graph.inputs),
        ops=tuple(replace(op, id=f"x_{op.id}", inputs=tuple(f"x_{value}" for value in op.inputs)) for op in graph.ops),
        outputs=tuple(f"x_{value}" for value in graph.outputs),
    )
    costs = {solvers.solve(formulate(each, model_of("2x2")).problem).cost for each in (graph, named)}
    assert len(costs) == 1
