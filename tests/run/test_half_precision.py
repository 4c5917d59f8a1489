"""Half precision: every value exists in its dtype, and rounding explains a program's error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program
from planner.judge.baselines import encode_baseline
from planner.judge.standard_layouts import list_baselines
from planner.pipeline import write_program
from planner.run.backend import ROUNDED, round_to_dtype, run_dtype
from planner.run.executor import run_program, run_whole
from planner.run.inputs import random_inputs
from planner.run.validate import ROUNDED_TOLERANCE, validate
from tests.testing.graphs import Sketch
from tests.testing.sample_programs import question_of, random_program

HALVES = ["bf16", "f16"]
MESH = "dp=2,tp=2"


def upper_half(array: np.ndarray) -> np.ndarray:
    """To bf16 by its definition: the upper 16 bits of an f32, rounded to the nearest, of two to the even one."""
    bits = array.astype("f4").view("u4")
    odd = (bits >> 16) & 1
    rounded: np.ndarray = ((bits + 0x7FFF + odd) & 0xFFFF0000).astype("u4").view("f4")
    return rounded


def perceptron(dtype: str) -> Sketch:
    s = Sketch(dtype)
    hidden = s.op("gelu", [s.op("matmul", [s.input(8, 16), s.input(16, 32)], (8, 32))], (8, 32))
    s.op("multiply", [s.op("matmul", [hidden, s.input(32, 8)], (8, 8))], (8, 8), scalar=3)
    return s


def training_step(name: str, dtype: str, layout: str) -> Program:
    sizes: dict[str, Any] = {"vocabulary": 32, "width": 16, "heads": 4, "feed_forward": 32, "layers": 1}
    document = import_zoo(name, batch=4, seq=8, dtype=dtype, train="adam", **sizes)
    graph = load_graph(validate_document(GraphDocument, document, name), Mesh.parse(MESH))
    question = question_of(graph, MESH)
    chosen = encode_baseline(
        question, next(each for each in list_baselines(graph, Mesh.parse(MESH)) if each.name == layout)
    )
    assert chosen is not None
    return write_program(question, question.decode(chosen))


def test_bf16_is_the_upper_half_of_f32() -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, 100_000, np.uint32).view("f4")
    normal = bits[np.isfinite(bits) & (np.abs(bits) >= np.finfo("f4").tiny)]
    ties = (random.integers(0x3F80, 0x4F80, 1000).astype("u4") << 16 | 0x8000).view("f4")
    array = np.concatenate([normal, ties, [0.0, -0.0, np.inf, -np.inf, 1.0, 3.4e38]]).astype("f4")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(round_to_dtype(np, array, "bf16", precision=ROUNDED), upper_half(array))
    assert np.isnan(round_to_dtype(np, np.array([np.nan], "f4"), "bf16", precision=ROUNDED)).all()
    assert round_to_dtype(np, array, "f32", precision=ROUNDED) is array
    assert round_to_dtype(np, array, "bf16", precision="f32") is array


@pytest.mark.parametrize("dtype", HALVES)
def test_every_value_is_one_that_its_dtype_has(dtype: str) -> None:
    s = perceptron(dtype)
    graph = s.graph(s.ops[-1].values[0])
    arrays = random_inputs(graph, np, ROUNDED, seed=0)
    values = run_whole(graph, arrays, np, precision=ROUNDED)
    done = run_program(random_program(question_of(graph, MESH), 0), arrays, np, precision=ROUNDED)
    for array in (*values.values(), *(array for held in done.outputs for array in held)):
        assert array.dtype == run_dtype(np, dtype, ROUNDED) == np.float32
        np.testing.assert_array_equal(array, round_to_dtype(np, array, dtype, precision=ROUNDED))


@pytest.mark.parametrize("dtype", HALVES)
def test_any_program_is_equal_to_its_graph(dtype: str) -> None:
    s = perceptron(dtype)
    question = question_of(s.graph(s.ops[-1].values[0]), MESH)
    verdicts = [validate(random_program(question, seed), precision=ROUNDED) for seed in range(12)]
    assert {found.verdict for found in verdicts} == {"equal"}
    assert any(found.max_relative_error for found in verdicts), "sums of terms are rounded otherwise"
    assert all(found.counted_bytes == found.predicted_bytes for found in verdicts)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["gpt2", "llama-7b"])
def test_a_training_step_is_equal_to_its_graph(name: str, dtype: str) -> None:
    found = validate(training_step(name, dtype, "DPxTP"), precision=ROUNDED)
    assert (found.verdict, found.precision) == ("equal", ROUNDED)
    assert found.max_relative_error is not None
    assert 0 < found.max_relative_error < ROUNDED_TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", HALVES)
def test_errors_beyond_rounding_are_differences(dtype: str) -> None:
    s = perceptron(dtype)
    program = random_program(question_of(s.graph(s.ops[-1].values[0]), MESH), 0)
    wrong = tuple(
        replace(done, op=replace(done.op, attrs={"scalar": 3 * 1.05}))
        if isinstance(done, OpCall) and done.op.op == "multiply"
        else done
        for done in program.instructions
    )
    found = validate(replace(program, instructions=wrong), shrinking="none", precision=ROUNDED)
    assert found.verdict == "different"
    assert found.difference is not None
    assert found.difference.operation == s.ops[-1].id


def test_f8_is_refused() -> None:
    s = perceptron("f8e4m3")
    program = random_program(question_of(s.graph(s.ops[-1].values[0]), MESH), 0)
    with pytest.raises(InvalidRequest, match=r"values of f8e4m3: precision rounded \(wanted f32 or f64\)"):
        validate(program, precision=ROUNDED)
