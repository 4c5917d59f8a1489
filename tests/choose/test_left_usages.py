"""The memory of micro-batches in flight is the same in the choice problem and in the program that a choice becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.choose.rematerialization import find_recomputable_ops
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.in_flight import ALONE, InFlight
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.judge.program_choice import encode_choice, recompute_everything
from planner.pipeline import write_program
from planner.rewrite.accumulate import accumulate_gradients
from tests.testing.micro_steps import two_layers
from tests.testing.random_strategies import random_strategies
from tests.testing.seeds import seeds

MESHES = ["2", "2x2", "3", "4x2"]


def tiny_llama() -> Graph:
    sizes: dict[str, Any] = {"layers": 1, "width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24}
    document = import_zoo("llama-7b", batch=4, seq=8, train="adam", dtype="f32", **sizes)
    return load_graph(GraphDocument.model_validate(document), Mesh.parse("2x2"))


def in_any_layout(graph: Graph) -> Graph:
    return replace(graph, inputs=tuple(replace(entry, next=None) for entry in graph.inputs))


@pytest.mark.parametrize("seed", seeds(16))
def test_any_choice_holds_what_its_program_does(seed: int) -> None:
    step = accumulate_gradients(in_any_layout(two_layers() if seed % 3 else tiny_llama()), seed % 4 + 2)
    model = CostModel(Mesh.parse(MESHES[seed % len(MESHES)]), load_profile("cpu"))
    late = find_recomputable_ops(step) if seed % 2 else {}
    sums = [op for op in step.ops if op.accumulates]
    apart = frozenset({op.id for op in sums} | {value for op in sums for value in op.inputs if ":" not in value})
    random = np.random.default_rng(seed)
    for flying in (ALONE, InFlight(3), InFlight(2, 1, apart), InFlight(0, 2, apart)):
        graph = replace(step, in_flight=flying)
        plain, question = formulate(graph, model), formulate(graph, model, late=late)
        choice = plain.decode(random_strategies(plain, random))
        chosen = encode_choice(question, recompute_everything(question, choice) if late else choice)
        program = write_program(question, question.decode(chosen))
        priced, analysis = solvers.evaluate(question.problem, chosen), Analysis(program, model)
        assert priced.cost == analysis.step_ps
        assert priced.peak >= analysis.peak_bytes
        if flying != ALONE:
            assert analysis.peak_bytes >= Analysis(replace(program, graph=step_of(program.graph)), model).peak_bytes


def step_of(graph: Graph) -> Graph:
    return replace(graph, in_flight=ALONE)


def test_each_micro_batch_in_flight_holds_what_the_forward_pass_left() -> None:
    step, model = accumulate_gradients(two_layers(), 4), CostModel(Mesh.parse("1"), load_profile("cpu"))
    peaks = []
    for count in (0, 1, 2, 3):
        question = formulate(replace(step, in_flight=InFlight(count)), model)
        peaks.append(solvers.evaluate(question.problem, [0] * len(question.variables)).peak)
    grown = np.diff(peaks)
    # For the backward pass the forward pass leaves x (4 x 8), exp(x v) (4 x 8) and the result (4 x 6), all f32. The
    # transposed parameter is made anew in each backward pass.
    assert grown.tolist() == [(32 + 32 + 24) * 4] * 3
