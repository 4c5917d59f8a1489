"""Verdicts: random programs equal their graph and their predictions, faulty ones do not."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from planner.errors import InvalidRequest, RunFailed, ShardplanError
from planner.ir.accounting import count_live_bytes, count_received_bytes
from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.ir.program import Reshard
from planner.ir.sharding import Reduction
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.backend import ROUNDED
from planner.run.executor import run_program
from planner.run.inputs import random_inputs
from planner.run.validate import check_backend, rounding_tolerance, validate
from tests.testing.graphs import Sketch, random_graph, small_transformer
from tests.testing.op_cases import CASES
from tests.testing.sample_programs import (
    alone,
    known_by_its_rule,
    left_partial,
    question_of,
    random_program,
    three_inputs,
)
from tests.testing.seeds import of_the_day, seeds

MESHES = ["2x4", "2x2x2", "3x2"]
SIZES = [{}, {"d": 12, "ff": 20, "heads": 6, "batch": 7, "seq": 9}]
UNDEFINED = {"log", "sqrt", "rsqrt", "pow", "acosh"}  # of random inputs, half of which are negative and none above 1


@pytest.mark.parametrize("sizes", SIZES, ids=["even", "uneven"])
@pytest.mark.parametrize("mesh", MESHES)
def test_any_transformer_is_equal_to_its_graph_and_its_predictions(mesh: str, sizes: dict[str, int]) -> None:
    question = question_of(small_transformer(Mesh.parse(mesh), **sizes), mesh)
    for seed in seeds(4):
        program = random_program(question, seed)
        for shrinking in ("auto", "none"):
            for precision in ("f64", "f32"):
                found = validate(program, shrinking=shrinking, precision=precision, seed=seed)
                assert found.verdict == "equal"
                assert found.counted_bytes == found.predicted_bytes
                assert found.counted_peak_bytes == found.predicted_peak_bytes
                assert found.devices == Mesh.parse(mesh).devices


@pytest.mark.parametrize("seed", seeds(16))
def test_any_random_graph_is_equal_to_its_program(seed: int) -> None:
    question = question_of(random_graph(seed, 7, (6, 8, 7, 1)), ["2x2", "3x2", "4", "1x2"][seed % 4])
    for number in range(3):
        assert validate(random_program(question, number)).verdict == "equal"


@pytest.mark.parametrize("op", sorted({case.op for case in CASES} - UNDEFINED))
def test_every_row_of_the_table_runs_in_a_program_of_its_own(op: str) -> None:
    for case in of_the_day([case for case in CASES if case.op == op], share=2):
        question = question_of(alone(case), "3x2")
        for seed in seeds(2):
            for shrinking in ("auto", "none"):
                assert validate(random_program(question, seed), shrinking=shrinking).verdict == "equal", case


def test_every_device_receives_and_holds_what_is_predicted() -> None:
    program = random_program(question_of(small_transformer(Mesh.parse("3x2"), batch=7), "3x2"), 5)
    arrays = random_inputs(program.graph, np, "f64", seed=0)
    done = run_program(program, arrays, np, precision="f64")
    assert (done.received == count_received_bytes(program)).all()
    assert (done.peak == count_live_bytes(program).max(axis=0)).all()
    assert len(set(done.peak.tolist())) > 1, "uneven blocks hold less"


def test_a_useless_move_is_counted_like_any_other() -> None:
    program = three_inputs()
    again = next(done for done in program.instructions if isinstance(done, Reshard))
    extra = replace(again, result=f"{again.result}.again")
    longer = replace(program, instructions=(*program.instructions, extra))
    found = validate(longer, shrinking="none")
    assert found.verdict == "equal"
    assert (found.counted_bytes or 0) > (validate(program, shrinking="none").counted_bytes or 0)


def test_values_that_are_not_finite_must_be_so_on_both_sides() -> None:
    s = Sketch()
    steep = s.op("exp", [s.op("multiply", [s.input(64, 4)], (64, 4), scalar=2000.0)], (64, 4))
    root = s.op("sqrt", [s.input(64, 4)], (64, 4))
    question = question_of(s.graph(steep, root), "2x2")
    for seed in seeds(5):
        found = validate(random_program(question, seed), shrinking="none")
        assert found.verdict == "equal"
        assert math.isfinite(found.max_relative_error or 0.0)


def test_an_output_without_a_number_is_no_verdict() -> None:
    s = Sketch()
    square = s.op("square", [s.input(8)], (8,))
    graph = s.graph(s.op("log", [s.op("negate", [square], (8,))], (8,)))
    with pytest.raises(RunFailed, match=r"output 'n2': the graph run whole makes no finite element"):
        validate(random_program(question_of(graph, "2"), 0))


def test_an_op_known_by_its_rule_alone_is_checked_structurally() -> None:
    found = validate(random_program(question_of(known_by_its_rule(), "2"), 0))
    assert (found.verdict, found.not_run, found.counted_bytes) == ("structural", ("sort_rows",), None)


@pytest.mark.parametrize("reduction", list(Reduction))
def test_an_output_left_partial_is_what_its_terms_are_together(reduction: Reduction) -> None:
    assert validate(left_partial(reduction), shrinking="none").verdict == "equal"
    assert validate(left_partial(reduction, wrong=True), shrinking="none").verdict == "different"


def test_a_product_left_partial_is_equal_and_another_product_is_not() -> None:
    s = Sketch()
    x, w, v = s.input(6, 8), s.input(8, 6), s.input(8, 6)
    one, other = (s.op("matmul", [x, each], (6, 6)) for each in (w, v))
    graph, mesh = s.graph(one), Mesh.parse("2x2")
    options: dict[str, Option] = dict.fromkeys((one, other), ((), (0,), (1,)))
    completed = propagate(graph, mesh, options)
    program = materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh))
    assert program.values[one].sharding.partial == (0,)
    assert validate(program, shrinking="none").verdict == "equal"
    assert validate(replace(program, outputs=(other,)), shrinking="none").verdict == "different"


# options, error, message
WRONG_OPTIONS = [
    ({"shrinking": "some"}, InvalidRequest, r"shrink \(got some; wanted one of auto, none"),
    ({"precision": "f16"}, InvalidRequest, r"precision \(got f16; wanted one of"),
    ({"backend": "torch"}, RunFailed, r"unknown backend \(got torch; wanted one of numpy, cupy, mpi, nccl"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG_OPTIONS)
def test_an_invalid_option_is_refused(options: dict[str, str], error: type[ShardplanError], message: str) -> None:
    with pytest.raises(error, match=message):
        validate(three_inputs(), **options)  # type: ignore[arg-type]


def test_a_missing_cupy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # an import of it fails, installed or not
    with pytest.raises(RunFailed, match=r"cupy cannot be used .*wanted shardplan\[cuda12\]"):
        validate(three_inputs(), backend="cupy")


def test_progress_counts_every_op_of_the_graph_and_then_every_instruction() -> None:
    program, told = three_inputs(), []
    validate(program, on_progress=lambda done, of: told.append((done, of)))
    counts = len(program.graph.ops), len(program.instructions)
    assert told[0] == (0, counts[0]), "while the run is prepared, so that it keeps a deadline"
    assert [each for each in told if each[0]] == [(n, count) for count in counts for n in range(1, count + 1)]


def test_the_same_seed_gives_the_same_verdict() -> None:
    program = three_inputs()
    assert validate(program, seed=3) == validate(program, seed=3)


def test_a_program_that_cannot_fit_into_memory_is_refused_before_it_runs() -> None:
    s = Sketch()
    most = (1 << 22, 1 << 20)
    program = random_program(question_of(s.graph(s.op("relu", [s.input(*most)], most)), "2"), 0)
    with pytest.raises(RunFailed, match=r"too little memory to run the program .* GiB; wanted \d+.0 GiB at least"):
        validate(program, shrinking="none")
    assert validate(program).verdict == "equal"


def test_as_many_as_1024_logical_devices_are_run_and_no_more() -> None:
    assert check_backend("numpy", "auto", "f64", mesh=Mesh.parse("32x32")) is np
    with pytest.raises(InvalidRequest, match=r"to run \(got 1025; wanted at most 1024, or --shrink auto\)"):
        check_backend("numpy", "none", "f64", mesh=Mesh.parse("1025"))


def test_a_program_for_a_million_devices_is_run_on_a_smaller_mesh() -> None:
    s = Sketch()
    sizes = (1 << 20, 64)
    program = random_program(question_of(s.graph(s.op("relu", [s.input(*sizes)], sizes)), "1024x1024"), 3)
    found = validate(program)
    assert (found.verdict, found.devices, found.shrunk) == ("equal", 64, True)


def test_a_long_program_is_run_on_fewer_devices() -> None:
    s, mesh = Sketch(), Mesh.parse("dp=256,tp=4")
    x = s.input(256, 4)
    for _ in range(1_100):
        x = s.op("negate", [x], (256, 4))
    graph = s.graph(x)
    completed = propagate(graph, mesh, {x: ((0,), ())})
    program = materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh))
    found = validate(program)
    assert (found.verdict, found.devices, found.shrunk) == ("equal", 64, True)


def test_rounding_explains_as_much_as_the_coarsest_float_is_coarse() -> None:
    """bf16 has three bits fewer than f16."""
    half, other, both = (Sketch("f16"), Sketch("bf16"), Sketch("f16"))
    graphs = [s.graph(s.op("exp", [s.input(4)], (4,))) for s in (half, other)]
    x = both.input(4)
    both.dtype = "bf16"
    graphs.append(both.graph(both.op("cast", [x], (4,))))
    fine, coarse, mixed = (rounding_tolerance(graph, ROUNDED) for graph in graphs)
    assert (fine, coarse, mixed) == (4 * float(np.finfo("f2").eps), 8 * fine, coarse)
