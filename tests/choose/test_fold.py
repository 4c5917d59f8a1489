"""Equal layers are found by structure, and a solution of the folded problem costs exactly the same unfolded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.fold import FoldedProblem, RepeatedLayers
from planner.choose.fold.colour_refinement import LabelledGraph
from planner.choose.fold.interning import ArrayInterner
from planner.choose.fold.quotient_problem import build_quotient
from planner.choose.fold.repeated_layers import find_stacks
from planner.choose.fold.usage_profile import Usages
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Annotation, Graph, Input, Op
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from solvers import IMPOSSIBLE, Problem
from tests.testing.graphs import Sketch, random_graph, small_transformer
from tests.testing.random_problems import tiny
from tests.testing.seeds import seeds

GPT = {"width": 16, "heads": 2, "kv_heads": 2, "feed_forward": 32, "vocabulary": 24, "batch": 8, "seq": 8}
LLAMA = {**GPT, "kv_heads": 1}
EXPERTS = {**LLAMA, "experts": 4, "active": 2}
MESHES = ("2", "2x2")
Use = tuple[int, int, int]
USES: list[list[Use]] = [
    [(0, 0, 5)],
    [(0, 0, 8), (1, 0, 2), (1, 2, 6), (1, 3, 6), (1, 6, 8)],  # like at both ends, more between
    [(0, 0, 9), (1, 0, 9), (0, 0, 3), (1, 3, 6), (0, 6, 9)],  # like at both ends, less of one thing between
    [(0, 0, 9), (1, 0, 9), (0, 0, 2), (1, 6, 9), (0, 3, 5), (1, 3, 5)],
    [(0, k, 20 - k) for k in range(8)],
    [*((0, 2 * k, 20) for k in range(10)), *((1, 0, 2 * k + 1) for k in range(10))],
]


def zoo(name: str, layers: int, train: str | None, **sizes: Any) -> Graph:
    batch, seq = sizes.pop("batch"), sizes.pop("seq")
    document = import_zoo(name, batch=batch, seq=seq, dtype="bf16", train=train, capacity=1.0, layers=layers, **sizes)
    return load_graph(validate_document(GraphDocument, document, name), Mesh.parse("2x2"))


def encoder_decoder(layers: int) -> Graph:
    """Two stacks: every decoder layer reads what the encoder has made."""
    s = Sketch()
    x, y = s.input(8, 16), s.input(8, 16)

    def block(x: str) -> str:
        wide = s.op("relu", [s.op("matmul", [x, s.input(16, 64)], (8, 64))], (8, 64))
        return s.op("add", [x, s.op("matmul", [wide, s.input(64, 16)], (8, 16))], (8, 16))

    for _ in range(layers):
        x = block(x)
    for _ in range(layers):
        crossed = s.op("multiply", [y, s.op("matmul", [x, s.input(16, 16)], (8, 16))], (8, 16))
        y = block(s.op("add", [y, s.op("softmax", [crossed], (8, 16), dim=1)], (8, 16)))
    return s.graph(y)


STACKS: list[tuple[str, Callable[[], Graph], tuple[int, ...]]] = [
    ("gpt forward", lambda: zoo("gpt2", 6, None, **GPT, positions=8), (6,)),
    ("gpt sgd", lambda: zoo("gpt2", 5, "sgd", **GPT, positions=8), (5,)),
    ("llama adam", lambda: zoo("llama-7b", 5, "adam", **LLAMA), (5,)),
    ("mixtral sgd", lambda: zoo("mixtral-8x7b", 4, "sgd", **EXPERTS), (4,)),
    # nothing in so small a decoder layer is out of sight of both its first input and its last output
    ("encoder and decoder", lambda: encoder_decoder(6), (5, 6)),
    ("blocks by hand", lambda: small_transformer(Mesh.parse("2x2"), blocks=5), (5,)),
]
NAMES = [name for name, _, _ in STACKS]


@cache
def question(name: str, mesh: str = "2") -> Formulation:
    make = next(make for known, make, _ in STACKS if known == name)
    return formulate(make(), CostModel(Mesh.parse(mesh), load_profile("cpu")))


def groups(problem: Problem) -> set[frozenset[str]]:
    """Names of the nodes that are tied."""
    found: dict[int, set[str]] = {}
    for node, member in zip(problem.nodes, RepeatedLayers.of(problem).quotient().quotient_node, strict=True):
        found.setdefault(member, set()).add(node.name)
    return {frozenset(each) for each in found.values()}


def anything(problem: Problem, random: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(random.integers(0, len(node.cost))) for node in problem.nodes)


def allowed(problem: Problem, random: np.random.Generator, count: int) -> Iterator[tuple[int, ...]]:
    """A good choice, and others each a random change away from the one before; nothing in them is forbidden."""
    choice = solvers.solve(problem, gap=0.5).assignment
    assert choice is not None
    for _ in range(count):
        yield choice
        node = int(random.integers(0, len(choice)))
        other = (*choice[:node], int(random.integers(0, len(problem.nodes[node].cost))), *choice[node + 1 :])
        choice = other if solvers.evaluate(problem, other).cost < IMPOSSIBLE else choice


def same_worth(problem: Problem, folded: FoldedProblem, choice: tuple[int, ...]) -> None:
    one, other = solvers.evaluate(folded.problem, choice), solvers.evaluate(problem, folded.unfold_choice(choice))
    assert (one.peak, one.feasible) == (other.peak, other.feasible)
    assert one.cost == other.cost or min(one.cost, other.cost) >= IMPOSSIBLE
    used = solvers.usage_profile(folded.problem, choice)
    np.testing.assert_array_equal(used, solvers.usage_profile(problem, folded.unfold_choice(choice))[folded.moments])


@pytest.mark.parametrize(("name", "layers"), [(name, layers) for name, _, layers in STACKS], ids=NAMES)
def test_layers_are_found_and_counted(name: str, layers: tuple[int, ...]) -> None:
    assert RepeatedLayers.of(question(name).problem).counts == layers


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", NAMES)
def test_a_folded_solution_costs_exactly_the_same_unfolded(name: str, mesh: str) -> None:
    problem, random = question(name, mesh).problem, np.random.default_rng(0)
    layers = RepeatedLayers.of(problem)
    for pieces in (1, 3):
        folded = layers.quotient(pieces)
        for choice in (anything(folded.problem, random), *allowed(folded.problem, random, 15)):
            same_worth(problem, folded, choice)


@pytest.mark.parametrize("seed", seeds(200))
def test_any_equal_variables_may_be_tied(seed: int) -> None:
    problem, random = tiny(seed), np.random.default_rng(seed)
    sizes = [len(node.cost) for node in problem.nodes]
    label = {(size, k): 2 * size + k for size in sizes for k in (0, 1)}
    picked = [label[size, int(random.integers(0, 2))] for size in sizes]
    member = tuple(list(dict.fromkeys(picked)).index(each) for each in picked)
    together, moments = build_quotient(problem, member, ArrayInterner())
    folded = FoldedProblem(together, member, moments)
    for _ in range(10):
        same_worth(problem, folded, anything(folded.problem, random))


def random_uses(seed: int) -> list[Use]:
    random = np.random.default_rng(seed)
    kinds, end = int(random.integers(1, 5)), int(random.integers(4, 40))
    always = [(kind, 0, end) for kind in range(kinds)]
    return always + [
        (int(random.integers(0, kinds)), *sorted(random.integers(0, end + 1, 2).tolist())) for _ in range(3 * end)
    ]


@pytest.mark.parametrize("uses", [*USES, *map(random_uses, seeds(100))])
def test_the_moments_that_are_left_out_never_hold_the_peak(uses: list[Use]) -> None:
    usages, end = Usages(), max(stop for _, _, stop in uses)
    for array, start, stop in uses:
        usages.add(0, array, (start, stop))
    profile = usages.profile()
    whole = np.array([[sum(a == k and b <= t < c for a, b, c in uses) for t in range(end)] for k in range(4)])
    kept = np.zeros((4, len(profile.moments)), np.int64)
    for (_, array), row in profile.rows.items():
        kept[array] = profile.counts[row]
    assert (whole[:, profile.moments] == kept).all()
    for sizes in np.random.default_rng(0).integers(0, 1000, (20, 4)):
        assert (sizes @ kept).max() == (sizes @ whole).max()


@pytest.mark.parametrize("falling", [0, 1])
def test_of_time_steps_with_evenly_changing_usage_the_first_and_the_last_stay(falling: int) -> None:
    usages = Usages()
    for k in range(1, 11):
        usages.add(0, falling, (0, 2 * k))
        usages.add(0, 1 - falling, (2 * k - 2, 20))
    profile = usages.profile()
    assert sorted(profile.counts.tolist()) == [[1, 10], [10, 1]]


@pytest.mark.parametrize("name", NAMES)
def test_the_best_folded_plan_is_little_worse_than_the_best(name: str) -> None:
    problem = question(name).problem
    folded = RepeatedLayers.of(problem).quotient()
    first, best = solvers.solve(folded.problem), solvers.solve(problem)
    assert first.cost is not None
    assert best.cost is not None
    assert best.bound <= best.cost <= first.cost <= 1.05 * best.bound


@pytest.mark.parametrize("name", NAMES)
def test_tied_variables_have_equal_strategies_and_read_alike(name: str) -> None:
    problem = question(name).problem
    into: list[list[solvers.Edge]] = [[] for _ in problem.nodes]
    for edge in problem.edges:
        into[edge.target].append(edge)
    for orbit in find_stacks(LabelledGraph.of(problem, ArrayInterner())).orbits:
        for one, other in pairwise(orbit):
            assert np.array_equal(problem.nodes[one].cost, problem.nodes[other].cost)
            for ours, theirs in zip(into[one], into[other], strict=True):
                for what in ("source_class", "target_class"):
                    assert np.array_equal(getattr(ours, what), getattr(theirs, what))
                rows, columns = (np.arange(count) for count in ours.shape)
                assert ours.shape == theirs.shape
                assert np.array_equal(ours.cost(rows[:, None], columns), theirs.cost(rows[:, None], columns))


@pytest.mark.parametrize("seed", seeds(2))
def test_names_and_the_order_of_ops_change_nothing(seed: int) -> None:
    graph = zoo("llama-7b", 4, "adam", **LLAMA)
    other, names = shuffled(graph, np.random.default_rng(seed))
    model = CostModel(Mesh.parse("2"), load_profile("cpu"))
    mine = groups(formulate(graph, model).problem)
    renamed = {frozenset(" ".join((n.split()[0], names.get(n.split()[1], n.split()[1]))) for n in g) for g in mine}
    assert renamed == groups(formulate(other, model).problem)


def shuffled(graph: Graph, random: np.random.Generator) -> tuple[Graph, dict[str, str]]:
    """The graph with other names, its ops in another order that respects their uses; new names by old ones."""
    ids = [*(entry.id for entry in graph.inputs), *(op.id for op in graph.ops)]
    names = {old: f"x{new}" for old, new in zip(ids, random.permutation(len(ids)).tolist(), strict=True)}
    names |= {v: names[op.id] + v[len(op.id) :] for op in graph.ops for v in op.values}
    made, waiting, ops = {entry.id for entry in graph.inputs}, list(graph.ops), list[Op]()
    while waiting:
        ready = [op for op in waiting if made.issuperset(op.inputs)]
        op = ready[int(random.integers(0, len(ready)))]
        waiting.remove(op)
        made.update(op.values)
        ops.append(replace(op, id=names[op.id], inputs=tuple(names[value] for value in op.inputs)))
    inputs = [renamed(entry, names) for entry in graph.inputs]
    return Graph(graph.name, tuple(inputs), tuple(ops), tuple(names[value] for value in graph.outputs)), names


def renamed(entry: Input, names: dict[str, str]) -> Input:
    return replace(entry, id=names[entry.id], next=None if entry.next is None else names[entry.next])


def test_a_layer_that_is_pinned_is_left_alone() -> None:
    graph = small_transformer(Mesh.parse("2"), blocks=6)
    named = [op for op in graph.ops if op.op == "linear"]
    value = named[len(named) // 2].values[0]
    pin = Annotation(value, Sharding(((0,), *((),) * (len(graph.types[value].shape) - 1))))
    pinned = Graph(graph.name, graph.inputs, graph.ops, graph.outputs, (pin,))
    found = groups(formulate(pinned, CostModel(Mesh.parse("2"), load_profile("cpu"))).problem)
    assert frozenset({f"op {value}"}) in found
    assert max(map(len, found)) == 6


@pytest.mark.parametrize("seed", seeds(20))
def test_a_graph_without_layers_is_folded_only_as_far_as_it_repeats(seed: int) -> None:
    problem = formulate(random_graph(seed, 12), CostModel(Mesh.parse("2"), load_profile("cpu"))).problem
    folded, random = RepeatedLayers.of(problem).quotient(), np.random.default_rng(seed)
    for _ in range(5):
        same_worth(problem, folded, anything(folded.problem, random))


def test_a_solution_that_is_equal_in_equal_layers_can_be_folded() -> None:
    problem = question("gpt sgd").problem
    folded = RepeatedLayers.of(problem).quotient()
    choice = anything(folded.problem, np.random.default_rng(1))
    whole = folded.unfold_choice(choice)
    assert folded.fold_choice(whole) == choice
    tie = next(k for k, member in enumerate(folded.quotient_node) if folded.quotient_node.count(member) > 1)
    changed = (whole[tie] + 1) % len(problem.nodes[tie].cost)
    assert folded.fold_choice((*whole[:tie], changed, *whole[tie + 1 :])) is None
