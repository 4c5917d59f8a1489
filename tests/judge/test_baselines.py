"""The standard layouts are what their names say, on a transformer of two blocks; the plan beats all that fit."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import pytest

import solvers
from planner import Plan, pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.collectives import Kind
from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Reshard
from planner.judge.analysis import Analysis
from planner.judge.baseline_choice import write_baseline
from planner.judge.baselines import encode_baseline
from planner.judge.standard_layouts import Baseline, list_baselines
from planner.planning.plan_types import Request
from tests.testing.transformer import transformer

MESH = Mesh.parse("dp=2,tp=4")
BLOCKS = 2
EVERYTHING = 10**12
GAP = 0.1
"""Wide, for speed: what is asked of plans here holds for the first ones found."""
NAMES = ["fully replicated", "data parallel", "FSDP", "Megatron tensor parallel", "DPxTP"]

# Where Megatron splits each product: (dim of the weight, dim of the bias); None: whole.
COLUMN, ROW = (0, 0), (1, None)
PRODUCTS = {"q": COLUMN, "k": COLUMN, "v": COLUMN, "o": ROW, "up": COLUMN, "down": ROW}


@cache
def graph() -> Graph:
    document = transformer(BLOCKS, d=64, ff=256, heads=8, batch=16, seq=32)
    return load_graph(validate_document(GraphDocument, document, "graph"), MESH)


@cache
def question() -> Formulation:
    return formulate(graph(), CostModel(MESH, load_profile("h100-sxm")), EVERYTHING)


@cache
def named(name: str) -> Baseline:
    return next(found for found in list_baselines(graph(), MESH) if found.name == name)


@cache
def analysed(name: str) -> Analysis:
    start = encode_baseline(question(), named(name))
    assert start is not None
    return Analysis(pipeline.write_program(question(), question().decode(start)), question().model)


@cache
def planned(limit: int | None = None) -> Plan:
    return pipeline.plan(graph(), MESH, load_profile("h100-sxm"), request=Request(limit, gap=GAP))


def collectives(name: str) -> Counter[tuple[Kind, tuple[int, ...]]]:
    moves = [done.collective for done in analysed(name).program.instructions if isinstance(done, Reshard)]
    return Counter((move.kind, move.axes) for move in moves)


def stored(name: str, value: str) -> tuple[tuple[int, ...], ...]:
    return analysed(name).program.values[value].sharding.split_axes


def parameters() -> list[str]:
    return [entry.id for entry in graph().inputs if entry.kind == "parameter"]


def test_all_five_layouts_exist_and_each_can_be_chosen() -> None:
    assert [found.name for found in list_baselines(graph(), MESH)] == NAMES
    assert [figures.name for figures in planned().baselines] == NAMES


def test_on_one_axis_there_is_no_dpxtp() -> None:
    for mesh in ("8", "1x8", "8x1"):
        assert [found.name for found in list_baselines(graph(), Mesh.parse(mesh))] == NAMES[:-1]


def test_fully_replicated_moves_nothing_and_splits_nothing() -> None:
    assert collectives("fully replicated") == Counter()
    shardings = {value.sharding for value in analysed("fully replicated").program.values.values()}
    assert all(not any(sharding.split_axes) and not sharding.partial for sharding in shardings)
    assert analysed("fully replicated").collective_bytes == 0


def test_data_parallel_splits_the_batch_everywhere_and_moves_nothing() -> None:
    assert collectives("data parallel") == Counter()
    for name, value in analysed("data parallel").program.values.items():
        batch = () if name in parameters() else (0, 1)
        assert value.sharding.split_axes == (batch, *[()] * (len(value.type.shape) - 1))


def test_fsdp_stores_every_parameter_split_and_gathers_each_once() -> None:
    assert collectives("FSDP") == {(Kind.ALL_GATHER, (0, 1)): len(parameters())}
    for name in parameters():
        assert stored("FSDP", name)[0] == (0, 1)
    gathered = {done.operand for done in analysed("FSDP").program.instructions if isinstance(done, Reshard)}
    assert gathered == set(parameters())
    assert analysed("FSDP").compute_ps == analysed("data parallel").compute_ps
    held = analysed("data parallel").peak_by_kind()["parameter"]
    assert analysed("FSDP").peak_by_kind()["parameter"] == held // MESH.devices


@pytest.mark.parametrize(("name", "axes"), [("Megatron tensor parallel", (0, 1)), ("DPxTP", (1,))])
def test_megatron_reduces_twice_a_block(name: str, axes: tuple[int, ...]) -> None:
    assert collectives(name) == {(Kind.ALL_REDUCE, axes): 2 * BLOCKS}


@pytest.mark.parametrize(("name", "axes"), [("Megatron tensor parallel", (0, 1)), ("DPxTP", (1,))])
def test_megatron_splits_columns_then_rows(name: str, axes: tuple[int, ...]) -> None:
    for block in range(BLOCKS):
        for product, (weight_dim, bias_dim) in PRODUCTS.items():
            weight = tuple(axes if dim == weight_dim else () for dim in range(2))
            assert stored(name, f"h{block}.{product}.weight") == weight
            assert stored(name, f"h{block}.{product}.bias") == (() if bias_dim is None else axes,)
        for norm in ("ln_1", "ln_2"):
            assert stored(name, f"h{block}.{norm}.weight") == ((),)


def test_attention_runs_on_heads_in_tensor_parallel_layouts() -> None:
    attention = [op.id for op in graph().ops if op.op == "scaled_dot_product_attention"]
    assert attention
    for op in attention:
        assert stored("Megatron tensor parallel", op) == ((), (0, 1), (), ())
        assert stored("DPxTP", op) == ((0,), (1,), (), ())


def test_dpxtp_splits_the_batch_over_the_first_axis() -> None:
    assert stored("DPxTP", "x") == ((0,), (), ())
    results = [value for op in graph().ops for value in op.values]
    assert all(stored("DPxTP", value)[0] == (0,) for value in results)


@pytest.mark.parametrize("name", NAMES)
def test_costs_and_memory_add_up(name: str) -> None:
    numbers = analysed(name)
    assert numbers.step_ps == sum(numbers.times_ps)
    moves = [isinstance(done, Reshard) for done in numbers.program.instructions]
    listed = list(zip(numbers.times_ps, moves, strict=True))
    assert numbers.step_ps == numbers.compute_ps + sum(time for time, move in listed if move)
    assert sum(numbers.peak_by_kind().values()) == numbers.peak_bytes
    assert numbers.peak_bytes == numbers.memory[numbers.peak_instruction].max()


@pytest.mark.parametrize("name", NAMES)
def test_a_named_layout_costs_the_same_to_the_solver(name: str) -> None:
    """The solver's cost of the choice is the evaluator's step, its peak the evaluator's peak."""
    start = encode_baseline(question(), named(name))
    assert start is not None
    found = solvers.evaluate(question().problem, start)
    assert (found.cost, found.peak) == (analysed(name).step_ps, analysed(name).peak_bytes)


def limits() -> list[int]:
    """The peak of every named layout: the last limits fit only some of them."""
    return sorted({analysed(name).peak_bytes for name in NAMES}, reverse=True)


@pytest.mark.slow
def test_the_plan_is_at_least_as_good_as_every_named_layout_that_fits() -> None:
    for limit in (None, *limits()):
        plan = planned(limit)
        assert plan.analysis is not None
        assert plan.analysis.peak_bytes <= plan.limit_bytes
        fitting = [figures for figures in plan.baselines if figures.fits]
        assert {figures.name for figures in fitting} == {
            name for name in NAMES if analysed(name).peak_bytes <= plan.limit_bytes
        }
        for figures in fitting:
            assert plan.analysis.step_ps <= analysed(figures.name).step_ps * (1 + 1e-9), figures.name


def test_under_the_least_of_these_limits_only_fsdp_fits() -> None:
    plan = planned(limits()[-1])
    assert [figures.name for figures in plan.baselines if figures.fits] == ["FSDP"]
    assert plan.analysis is not None
    assert plan.certificate.objective_s is not None
    assert plan.analysis.step_ps <= analysed("FSDP").step_ps


def test_less_memory_is_never_proven_faster() -> None:
    proven = [planned(limit).certificate for limit in limits()]
    for loose, tight in pairwise(proven):
        assert tight.objective_s is not None
        assert loose.bound_s <= tight.objective_s


def test_the_figures_of_a_plan_are_those_of_its_evaluator() -> None:
    for figures in planned().baselines:
        numbers = analysed(figures.name)
        assert figures.step_s == pytest.approx(numbers.step_ps * 1e-12)
        assert figures.collective_bytes == numbers.collective_bytes
        assert figures.peak_bytes == numbers.peak_bytes


def test_on_one_device_every_layout_is_the_same() -> None:
    mesh = Mesh.parse("1")
    found = pipeline.plan(graph(), mesh, load_profile("h100-sxm"))
    assert found.analysis is not None
    assert {figures.step_s for figures in found.baselines} == {found.analysis.step_ps * 1e-12}
    assert not [done for done in found.analysis.program.instructions if isinstance(done, Reshard)]


@pytest.mark.parametrize("optimizer", ["sgd-momentum", "adam"])
def test_optimizer_states_are_stored_and_updated_as_their_parameters(optimizer: str) -> None:
    mesh = Mesh.parse("dp=2,tp=2")
    document = import_zoo("llama-7b", layers=1, batch=4, seq=16, train=optimizer, width=64, heads=4, vocabulary=128)
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    question = formulate(graph, CostModel(mesh, load_profile("h100-sxm")))
    peaks = {}
    for layout in list_baselines(graph, mesh):
        stored = {entry.id: layout.inputs[entry.id] for entry in graph.inputs}
        states = [entry.id for entry in graph.inputs if entry.kind == "optimizer_state" and entry.type.shape]
        assert states
        for state in states:
            assert stored[state] == stored[state.rpartition(".")[0]]
        found = encode_baseline(question, layout)
        assert found is not None
        peaks[layout.name] = solvers.evaluate(question.problem, found).peak
    assert peaks["FSDP"] < peaks["DPxTP"] < peaks["data parallel"]


@pytest.mark.parametrize("train", ["sgd", "adam"])
def test_fsdp_gathers_a_parameter_before_each_use_in_a_search_and_without_one(train: str) -> None:
    mesh = Mesh.parse("dp=2,tp=2")
    document = import_zoo("llama-7b", layers=1, batch=4, seq=16, train=train, width=64, heads=4, vocabulary=128)
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    model = CostModel(mesh, load_profile("h100-sxm"))
    question = formulate(graph, model)
    layout = next(each for each in list_baselines(graph, mesh) if each.name == "FSDP")
    strategies = encode_baseline(question, layout)
    assert strategies is not None
    searched = pipeline.write_program(question, question.decode(strategies))
    _, alone = write_baseline(graph, model, layout)
    # The update reads parameters as they are stored.
    reads = [(value, reader.op) for value, readers in find_readers(graph).items() for reader in readers]
    uses = Counter(value for value, op in reads if op is not None and graph.ops[op].phase != "update")
    for program in (searched, alone):
        gathered = Counter(
            done.operand
            for done in program.instructions
            if isinstance(done, Reshard) and done.collective.kind is Kind.ALL_GATHER and done.operand in layout.inputs
        )
        weights = [entry.id for entry in graph.inputs if entry.kind == "parameter" and len(entry.type.shape) == 2]
        assert {name: gathered[name] for name in weights} == {name: uses[name] for name in weights}
    assert Analysis(searched, model).peak_bytes == pytest.approx(Analysis(alone, model).peak_bytes, rel=0.05)
