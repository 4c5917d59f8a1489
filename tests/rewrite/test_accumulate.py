"""A step of several micro-batches is the step on all of their data; its plan costs, holds and moves what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import solvers
from planner import Mesh, Request, pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.choose.rematerialization import find_recomputable_ops
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan, parse_plan
from planner.documents.programs import load_program
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidGraph, InvalidRequest
from planner.export.formats import FORMATS, export_program
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Annotation, Graph
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.judge.overlap import schedule_overlap
from planner.judge.program_choice import encode_choice, recompute_everything
from planner.judge.roofline_bounds import min_memory_bytes, min_step_s
from planner.pipeline import write_program
from planner.rewrite.accumulate import MAX_MICROBATCHES, accumulate_gradients
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs, random_later_data
from planner.run.validate import execute, validate
from planner.usecases.prove import prove_plan, verify_plan
from tests.testing import exhaustive
from tests.testing.micro_steps import PhasedSketch, tiny_llama, two_layers, without_next
from tests.testing.random_strategies import random_strategies
from tests.testing.seeds import seeds

MESHES = ["2", "2x2", "3", "4x2"]


def model_of(mesh: str) -> CostModel:
    return CostModel(Mesh.parse(mesh), load_profile("cpu"))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_several_micro_batches_are_one_step_on_all_of_their_data(count: int) -> None:
    small, large = accumulate_gradients(two_layers(4), count), two_layers(4 * count)
    arrays = random_inputs(small, np, "f64", seed=0)
    later = random_later_data(small, np, "f64", seed=0)
    whole = run_whole(small, arrays, np, precision="f64", later=later)
    data = np.concatenate([each["i0"] for each in (arrays, *later)])
    wanted = run_whole(large, arrays | {"i0": data}, np, precision="f64")
    assert len({each["i0"].tobytes() for each in (arrays, *later)}) == count
    for got, other in zip(small.outputs[1:], large.outputs[1:], strict=True):
        np.testing.assert_allclose(whole[got], wanted[other], rtol=1e-12)
    # The forward result is that of the last micro-batch.
    np.testing.assert_allclose(whole[small.outputs[0]], wanted[large.outputs[0]][-4:], rtol=1e-12)


@pytest.mark.parametrize("seed", seeds(24))
def test_any_choice_costs_holds_and_moves_what_its_program_does_when_it_runs(seed: int) -> None:
    graph = accumulate_gradients(without_next(two_layers() if seed % 3 else tiny_llama()), seed % 4 + 1)
    late = find_recomputable_ops(graph) if seed % 2 else {}
    model = model_of(MESHES[seed % len(MESHES)])
    plain, question = formulate(graph, model), formulate(graph, model, late=late)
    random = np.random.default_rng(seed)
    for _ in range(3):
        choice = plain.decode(random_strategies(plain, random))
        chosen = encode_choice(question, recompute_everything(question, choice) if late else choice)
        program = write_program(question, question.decode(chosen))
        found, told = Analysis(program, question.model), solvers.evaluate(question.problem, chosen)
        assert told.cost == found.step_ps
        assert told.peak >= found.peak_bytes
        verdict, _ = execute(program, "numpy", "f64", seed=seed)
        assert verdict.verdict == "equal", verdict.difference
        assert verdict.counted_bytes == verdict.predicted_bytes
        assert verdict.counted_peak_bytes == verdict.predicted_peak_bytes


@pytest.mark.parametrize("train", ["sgd", "adam", "adamw:weight_decay=0.1", "muon"])
def test_steps_of_every_kind_of_update_run(train: str) -> None:
    plan = pipeline.plan(tiny_llama(train), Mesh.parse("2x2"), load_profile("cpu"), request=Request(microbatches=3))
    assert plan.analysis is not None
    assert validate(plan.analysis.program, shrinking="none").verdict == "equal"


def test_the_optimum_is_that_of_trying_everything() -> None:
    graph = accumulate_gradients(one_weight(), 3)
    question = formulate(graph, model_of("2"))
    least = exhaustive.find_min_peak(question.problem)
    assert least is not None
    for limit in (None, least, least * 5 // 4, least - 1):
        problem = solvers.Problem(question.problem.nodes, question.problem.edges, limit)
        best = exhaustive.find_cheapest(problem)
        assert solvers.solve(problem).cost == (best and best[1].cost)


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_an_export_holds_the_micro_batches_or_is_refused(form: str) -> None:
    plan = pipeline.plan(two_layers(), Mesh.parse("2"), load_profile("cpu"), request=Request(microbatches=2))
    assert plan.analysis is not None
    if extra := FORMATS[form].extra:
        pytest.importorskip(extra)
    if FORMATS[form].has_loops:
        assert ".sum" in export_program(plan.analysis.program, form)
    else:
        with pytest.raises(InvalidRequest, match="micro-batches"):
            export_program(plan.analysis.program, form)


def one_weight() -> Graph:
    """Return a step whose gradient is x^T x."""
    s = PhasedSketch()
    x, w = s.input(4, 6), s.input(6, 6, kind="parameter")
    s.phase = "backward"
    grad = s.op("matmul", [s.op("transpose", [x], (6, 4), permutation=[1, 0]), x], (6, 6))
    s.phase = "update"
    return s.graph(s.op("subtract", [w, grad], (6, 6)))


def test_a_step_takes_all_of_its_micro_batches_and_one_update() -> None:
    graph, model = without_next(tiny_llama()), model_of("2x2")
    times = {}
    for count in (2, 3, 64):
        step = accumulate_gradients(graph, count)
        question = formulate(step, model)
        random = random_strategies(question, np.random.default_rng(1))
        times[count] = Analysis(write_program(question, question.decode(random)), model)
    passes = times[3].step_ps - times[2].step_ps
    assert times[64].step_ps == 62 * passes + times[2].step_ps
    assert times[2].step_ps == 2 * passes + times[2].update_ps
    assert times[2].peak_bytes == times[64].peak_bytes
    assert times[64].collective_bytes - times[2].collective_bytes == 62 * (
        times[3].collective_bytes - times[2].collective_bytes
    )


def test_gradients_are_kept_as_partial_sums_until_memory_is_short() -> None:
    sizes: dict[str, Any] = {"width": 512, "heads": 8, "feed_forward": 1024, "vocabulary": 2048, "dtype": "bf16"}
    document = import_zoo("llama-7b", batch=8, seq=256, train="adam", layers=1, **sizes)
    mesh, hardware = Mesh.parse("4"), load_profile("h100-sxm")
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    plain = pipeline.plan(graph, mesh, hardware, request=Request(microbatches=4, gap=0.05))
    limit = next(each.peak_bytes for each in plain.baselines if each.name == "FSDP")
    tight = pipeline.plan(graph, mesh, hardware, request=Request(limit, microbatches=4, gap=0.05))
    held = []
    for plan in (plain, tight):
        assert plan.analysis is not None
        program = plan.analysis.program
        sums = [op.id for op in program.graph.ops if op.accumulates]
        held.append([program.values[name].sharding for name in sums])
    assert any(each.partial for each in held[0])
    assert any(any(each.split_axes) for each in held[1])
    assert tight.analysis is not None
    assert plain.analysis is not None
    assert tight.analysis.peak_bytes <= limit < plain.analysis.peak_bytes


def test_bounds_hold_for_steps_of_micro_batches() -> None:
    graph, mesh = accumulate_gradients(tiny_llama(), 4), Mesh.parse("2x2")
    model = CostModel(mesh, load_profile("cpu"))
    question = formulate(graph, model)
    found = solvers.solve(question.problem)
    assert found.cost is not None
    assert min_step_s(graph, model.hardware, mesh.devices) <= found.cost * 1e-12
    one_byte = solvers.Problem(question.problem.nodes, question.problem.edges, 1)
    least = solvers.solve(one_byte).min_feasible_limit
    assert least is not None
    for recompute in (False, True):
        assert min_memory_bytes(graph, mesh.devices, recompute) <= least
    assert min_memory_bytes(graph, 1, False) > min_memory_bytes(tiny_llama(), 1, False)


@pytest.mark.parametrize("seed", seeds(6))
def test_overlap_repeats_the_schedule_of_one_micro_batch(seed: int) -> None:
    model = model_of("2x2")
    lengths = []
    for count in (2, 3, 4):
        question = formulate(accumulate_gradients(without_next(tiny_llama()), count), model)
        program = write_program(question, question.decode(random_strategies(question, np.random.default_rng(seed))))
        analysis = Analysis(program, model)
        overlap = schedule_overlap(analysis, 1 << 40)
        assert overlap.floor_ps <= overlap.scheduled_ps <= overlap.serial_ps == analysis.step_ps
        assert overlap.schedule is not None
        assert overlap.schedule.peak_bytes >= int(analysis.memory[-1].max())
        lengths.append(overlap.scheduled_ps)
    assert lengths[2] - lengths[1] == lengths[1] - lengths[0]


def test_a_plan_document_says_its_micro_batches_and_is_read_back_and_verified() -> None:
    mesh, request = Mesh.parse("2x2"), Request(global_batch=12, deterministic=True)
    plan = pipeline.plan(tiny_llama("sgd"), mesh, load_profile("cpu"), request=request)
    document = dump_plan(plan)
    assert document["cost"]["microbatches"] == 3
    assert document["request"]["global_batch"] == 12
    assert plan.choice is not None
    assert plan.analysis is not None
    read = load_program(parse_plan(document, "plan"))
    assert read.instructions == plan.analysis.program.instructions or str(read) == str(plan.analysis.program)
    assert read.trips == plan.analysis.program.trips
    same = pipeline.plan(
        tiny_llama("sgd"), mesh, load_profile("cpu"), request=Request(microbatches=3, deterministic=True)
    )
    assert same.certificate.objective_s == plan.certificate.objective_s
    assert verify_plan(document, prove_plan(document, plan.choice, seconds=1)).gap < 0.2


def test_pins_of_a_gradient_that_the_update_reads_are_of_the_sum() -> None:
    graph = two_layers()
    gradient = next(op for op in graph.ops if op.phase == "update" and op.op == "multiply")
    pin = Annotation(gradient.inputs[0], Sharding(((0,), ())), user=gradient.id)
    step = accumulate_gradients(replace(graph, annotations=(pin,)), 2)
    plan = pipeline.plan(
        replace(graph, annotations=(pin,)), Mesh.parse("2"), load_profile("cpu"), request=Request(microbatches=2)
    )
    assert step.annotations[0].value == f"{gradient.inputs[0]}.sum"
    assert plan.analysis is not None
    assert validate(plan.analysis.program).verdict == "equal"


def without_update() -> Graph:
    graph = two_layers()
    kept = tuple(op for op in graph.ops if op.phase != "update")
    return replace(graph, ops=kept, inputs=tuple(replace(i, next=None) for i in graph.inputs), outputs=(kept[-1].id,))


def late_backward() -> Graph:
    graph = two_layers()
    return replace(graph, ops=(*graph.ops[:-1], replace(graph.ops[-1], phase="backward")))


def replaced_early() -> Graph:
    graph = two_layers()
    product = next(op for op in graph.ops if op.op == "matmul" and op.results[0].shape == (8, 6))
    inputs = tuple(replace(i, next=product.id if i.next == graph.outputs[2] else i.next) for i in graph.inputs)
    return replace(graph, inputs=inputs, outputs=(*graph.outputs[:2], product.id))


WRONG = [
    (without_update, "without an update.*no node of the phase update"),
    (late_backward, "a micro-batch reads what the update computes"),
    (replaced_early, "a micro-batch replaces state"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_a_graph_whose_phases_are_no_step_is_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    assert accumulate_gradients(make(), 1).microbatches == 1
    with pytest.raises(InvalidGraph, match=message):
        accumulate_gradients(make(), 2)


@pytest.mark.parametrize("batch", [0, -4, 6, 4 * (MAX_MICROBATCHES + 1)])
def test_a_global_batch_is_a_multiple_of_the_graph_s(batch: int) -> None:
    with pytest.raises(InvalidRequest, match=r"global batch|micro-batches"):
        accumulate_gradients(two_layers(4), global_batch=batch)


@pytest.mark.parametrize("request_of", [{"microbatches": 0}, {"microbatches": 2, "global_batch": 8}])
def test_a_request_counts_micro_batches_once(request_of: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="micro-batches"):
        Request(**request_of)  # type: ignore[arg-type]
