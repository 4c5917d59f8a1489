"""Model families, forward and training step: the imported graph gives torch's outputs, gradients and parameters."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.run.executor import run_program, run_whole
from planner.run.validate import validate
from tests.testing.hardware import EAGER
from tests.testing.random_shards import reassembled

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install shardplan[torch]")

from tests.testing.torch_families import CONFIGS, Family, family, felt_by_loss

pytestmark = pytest.mark.frameworks("torch", "transformers")

KINDS = list(CONFIGS)
MESHES = ["2x4", "2x2x2"]
TRAINED = [(kind, "adam") for kind in KINDS] + [("llama", "sgd"), ("gpt2", "sgd-momentum")]
TOLERANCE = 1e-4
FUSED = {
    "gpt2": {"gelu", "layer_norm", "addmm"},
    "bert": {"gelu", "layer_norm", "linear"},
    "vit": {"convolution", "gelu", "layer_norm", "linear"},
    "t5": {"rms_norm", "linear"},
    "llama": {"rms_norm", "rope", "silu", "linear"},
    "mixtral": {"rms_norm", "rope", "silu", "linear", "grouped_mm"},
}
PIECES = {"pow", "rsqrt", "tanh", "mean"}
"""Of what FUSED stands for; no model has them otherwise."""


def close(got: Any, wanted: Any) -> bool:
    """As a whole; where nothing is wanted (NaN), anything will do."""
    if np.isnan(wanted).all():
        return bool(got.shape == wanted.shape)
    error = np.nanmax(np.abs(got - wanted)) / np.nanmax(np.abs(wanted))
    return bool(got.shape == wanted.shape and error <= TOLERANCE)


def assert_equal(of: Family, values: dict[str, Any]) -> None:
    assert of.wanted
    assert [name for name, wanted in of.wanted.items() if not close(values[name], wanted)] == []


@cache
def planned(kind: str, train: str | None, mesh_text: str, *layers: int) -> Program:
    """On a device on which small tensors are worth splitting, and which has room for the step's inputs alone."""
    of, mesh = family(kind, train, *layers), Mesh.parse(mesh_text)
    limit = sum(array.nbytes for array in of.arrays.values())
    found = pipeline.plan(of.graph(mesh), mesh, EAGER, request=Request(limit, gap=0.5, time_limit_s=60))
    assert found.analysis is not None, found.certificate.reason
    return found.analysis.program


def run_alone(of: Family) -> dict[str, Any]:
    """T5 takes the logarithm of zero where it does not read it."""
    with np.errstate(all="ignore"):
        return run_whole(of.graph(), of.arrays, np, precision="f32")


def run_sharded(of: Family, program: Program) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        done = run_program(program, of.arrays, np, precision="f32")
    shards = zip(*done.outputs, strict=True)
    return {
        name: reassembled(program, list(parts), of.wanted[name].dtype, number)
        for number, (name, parts) in enumerate(zip(program.graph.outputs, shards, strict=True))
        if name in of.wanted
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_forward_pass_gives_torch_s_outputs(kind: str) -> None:
    of = family(kind, None)
    assert_equal(of, run_alone(of))


@pytest.mark.parametrize(("kind", "train"), TRAINED)
def test_the_training_step_gives_torch_s_loss_and_parameters(kind: str, train: str) -> None:
    of = family(kind, train)
    assert_equal(of, run_alone(of))


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_step_gives_torch_s_gradients(kind: str) -> None:
    """A first moment after one step is a tenth of the gradient; where that is only rounding, ours is."""
    of = family(kind, "adam")
    graph = of.graph()
    values = run_alone(of)
    moments = {entry.id: entry.next for entry in graph.inputs if entry.next is not None}
    names = {entry.name: entry.id for entry in graph.inputs if entry.kind == "parameter"}
    got = {name: values[moments[f"{names[name]}.exp_avg"]] for name in of.gradients}
    felt = felt_by_loss(of.gradients)
    assert [name for name in felt if felt[name].any() and not close(10 * got[name], of.gradients[name])] == []
    largest = max(abs(gradient).max() for gradient in of.gradients.values())
    assert [name for name in felt if abs(10 * got[name][~felt[name]]).max(initial=0) > 2e-5 * largest] == []


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_sharded_forward_pass_gives_torch_s_outputs(kind: str, mesh: str) -> None:
    assert_equal(family(kind, None), run_sharded(family(kind, None), planned(kind, None, mesh)))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_sharded_training_step_gives_torch_s_parameters(kind: str, mesh: str) -> None:
    of = family(kind, "adam", 1)
    assert_equal(of, run_sharded(of, planned(kind, "adam", mesh, 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_planned_training_step_is_valid(kind: str) -> None:
    assert validate(planned(kind, "adam", "2x4", 1)).verdict == "equal"


@pytest.mark.parametrize("kind", KINDS)
def test_small_functions_are_one_row_forward_and_backward(kind: str) -> None:
    for train in (None, "adam"):
        ops = {node.op for node in family(kind, train).document.nodes}
        assert FUSED[kind] <= ops
        assert not PIECES & ops
