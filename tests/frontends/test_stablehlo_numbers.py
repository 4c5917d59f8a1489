"""Imported JAX functions compute what JAX computes: outputs, losses, gradients, updated parameters and states.

The oracle is the jitted function itself on random parameters in f32; sharded programs are compared with it as well.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.stablehlo import import_text, trace_function
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ops import OPS
from planner.run.executor import run_whole
from planner.run.validate import validate
from tests.testing.hardware import EAGER

jax = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
jnp = jax.numpy
models = import_module("examples.jax_models")

pytestmark = pytest.mark.frameworks("jax")

BATCH = 4
TOLERANCE = 1e-4
FAMILIES = ["gpt", "llama", "mixtral", "vit"]
WALKS = [("forward", False), ("sgd", False), ("adam", True)]
"""Passes, and whether the layers are one scan; Adam's moments tell the gradients."""
COMPILED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
PLANNED = [
    *((family, "forward", "2x4") for family in FAMILIES),
    ("gpt", "sgd", "2x4"),
    ("mixtral", "sgd", "2x4"),
    ("llama", "sgd", "2x2x2"),
    ("vit", "sgd", "2x2"),
]
PASSES: dict[str, Callable[..., Any]] = {
    "forward": models.inference,
    "sgd": models.training,
    "adam": lambda model, batch: models.training(model, batch, "adam"),
}


def model_of(family: str, scanned: bool, layers: int = 2) -> Any:
    positions = 4 if family == "vit" else 8
    return models.Model(family, layers=layers, positions=positions, scanned=scanned)


def arrays_of(arguments: Any, model: Any) -> Any:
    """Random numbers for shapes: parameters as initialised, states positive, ids below the vocabulary."""
    random = np.random.default_rng(0)

    def drawn(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return random.integers(0, model.vocabulary, leaf.shape).astype(np.int32)
        return (0.3 * np.abs(random.standard_normal(leaf.shape))).astype(np.float32)

    others = arguments[1:]
    return (models.initialised(model), *jax.tree.map(drawn, tuple(others)))


def graph_of(document: dict[str, Any], mesh: str = "1") -> Graph:
    return load_graph(GraphDocument.model_validate(document), Mesh.parse(mesh))


def graph_and_arrays(family: str, scanned: bool, kind: str) -> tuple[Graph, dict[str, Any], list[Any]]:
    """The imported graph, its inputs by id, and what JAX makes of them."""
    model = model_of(family, scanned)
    function, *arguments = PASSES[kind](model, BATCH)
    found = trace_function(function, *arguments)
    made = import_text(found.text, f"{family}-{kind}")
    given = arrays_of(arguments, model)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(given)]
    read = {name: leaves[leaf] for name, leaf in zip(made.arguments, found.kept, strict=True)} | dict(made.constants)
    compiled = function.lower(*arguments).compile(compiler_options=COMPILED)
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*given))]
    return graph_of(made.document), read, wanted


def error_of(got: Any, wanted: Any) -> float:
    """Largest difference, relative to the largest magnitude wanted."""
    assert got.shape == wanted.shape
    return float(np.abs(got.astype(np.float64) - wanted).max() / (np.abs(wanted).max() or 1.0))


@pytest.mark.parametrize(("kind", "scanned"), WALKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_run_whole_gives_what_jax_gives(family: str, kind: str, scanned: bool) -> None:
    graph, arrays, wanted = graph_and_arrays(family, scanned, kind)
    assert not {op.op for op in graph.ops} - OPS.keys()
    values = run_whole(graph, arrays, np, precision="f32")
    assert len(graph.outputs) == len(wanted)
    errors = [error_of(values[name], array) for name, array in zip(graph.outputs, wanted, strict=True)]
    assert max(errors) <= TOLERANCE, dict(zip(graph.outputs, errors, strict=True))


@pytest.mark.parametrize(("family", "kind", "mesh"), PLANNED)
def test_a_plan_of_the_graph_gives_on_the_mesh_what_the_graph_gives_whole(family: str, kind: str, mesh: str) -> None:
    function, *arguments = PASSES[kind](model_of(family, scanned=True, layers=1), BATCH)
    graph = graph_of(import_text(trace_function(function, *arguments).text, family).document, mesh)
    plan = pipeline.plan(graph, Mesh.parse(mesh), EAGER, request=Request(gap=0.3, time_limit_s=60.0))
    assert plan.choice is not None
    assert plan.analysis is not None
    assert any(axes for option in plan.choice.options.values() for axes in option)
    verdict = validate(plan.analysis.program, "numpy", "none")
    assert (verdict.verdict, verdict.not_run) == ("equal", ())
