"""Trees of pointwise ops become one op with the same result; a loop's iterations are planned as layers are."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.fold import RepeatedLayers
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.stablehlo import import_stablehlo, import_text, trace_function
from planner.ir.mesh import Mesh
from planner.judge.standard_layouts import list_baselines
from planner.run.executor import SINGLE_DEVICE, run_whole

jax = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
jnp, lax = jax.numpy, jax.lax
models = import_module("examples.jax_models")

pytestmark = pytest.mark.frameworks("jax")

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)
HALF = jax.ShapeDtypeStruct((4, 8), jnp.bfloat16)
ROW = jax.ShapeDtypeStruct((8,), jnp.float32)


def shared(y: Any) -> Any:
    return y.sum(0) + y


FUNCTIONS: list[tuple[str, Any, tuple[Any, ...], list[str]]] = [
    ("silu", lambda x: x * jax.nn.sigmoid(x) + 1, (X,), ["pointwise"]),
    ("gelu", jax.nn.gelu, (X,), ["pointwise"]),
    ("one op", lambda x: x + x, (X,), ["add"]),
    ("read by two", lambda x: shared(jnp.tanh(x)), (X,), ["tanh", "sum", "add"]),
    ("also a result", lambda x: (lambda y: (y, y + 1))(jnp.tanh(x)), (X,), ["tanh", "add"]),
    ("a bias of one row", lambda x, b: jnp.tanh(x + b), (X, ROW), ["pointwise"]),
    ("a row made first", lambda x, b: x + jnp.tanh(b), (X, ROW), ["tanh", "add"]),
    ("a comparison", lambda x: jnp.where(x * 2 > 1, x, 0.0), (X,), ["pointwise"]),
    ("a cast to less", lambda x: x.astype(jnp.bfloat16) * 2, (X,), ["cast", "multiply"]),
    ("a cast to more", lambda x: x.astype(jnp.float32) * 2, (HALF,), ["pointwise"]),
]


@pytest.mark.parametrize(("name", "function", "arguments", "ops"), FUNCTIONS, ids=[name for name, *_ in FUNCTIONS])
def test_a_value_that_only_one_op_reads_becomes_part_of_it(
    name: str, function: Any, arguments: tuple[Any, ...], ops: list[str]
) -> None:
    made = import_text(trace_function(function, *arguments).text, name)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(each.shape).astype(each.dtype) for each in arguments]
    graph = load_graph(GraphDocument.model_validate(made.document), SINGLE_DEVICE)
    assert sorted(op.op for op in graph.ops if op.op != "full") == sorted(ops)
    read = {name: array.astype(np.float32) for name, array in zip(made.arguments, arrays, strict=True)}
    values = run_whole(graph, read, np, precision="f32")
    wanted = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(jax.jit(function)(*arrays))]
    tolerance = 1e-2 if HALF in arguments or "cast" in ops else 1e-5
    for output, array in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(values[output], array, rtol=tolerance, atol=1e-6)


def test_an_annotated_value_stays_a_value() -> None:
    mesh = jax.sharding.AbstractMesh((2,), ("dp",))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("dp"))
    text = trace_function(lambda x: jnp.sin(lax.with_sharding_constraint(jnp.tanh(x), spec)) * 2, X).text
    document = import_stablehlo(text, "t")
    assert {entry["value"] for entry in document["annotations"]} <= {node["id"] for node in document["nodes"]}
    assert "tanh" in [node["op"] for node in document["nodes"]]


def test_sums_pass_through_a_tree_where_they_pass_through_its_ops() -> None:
    """Gradients of three products are added, and reduced once."""
    found = trace_function(
        lambda x, a, b, c: (x @ a + x @ b) * 2 - x @ c, *[jax.ShapeDtypeStruct((8, 8), jnp.float32)] * 4
    )
    graph = load_graph(GraphDocument.model_validate(import_stablehlo(found.text, "t")), Mesh.parse("2"))
    (tree,) = [op for op in graph.ops if op.op == "pointwise"]
    assert str(tree.rule.pattern).endswith("linear 0+1+2")


@pytest.mark.parametrize("mesh", ["2x4", "2x2x2"])
def test_the_iterations_of_a_loop_share_one_decision(mesh: str) -> None:
    """Six turns fold to about what three do; what is carried from turn to turn is laid out alike in all of them."""

    def layers(count: int) -> RepeatedLayers:
        function, *arguments = models.inference(models.Model("llama", layers=count, scanned=True), 8)
        document = import_stablehlo(trace_function(function, *arguments).text, "t")
        graph = load_graph(GraphDocument.model_validate(document), Mesh.parse(mesh))
        return RepeatedLayers.of(formulate(graph, CostModel(Mesh.parse(mesh), load_profile("h100-sxm"))).problem)

    few, many = layers(4), layers(6)
    assert (few.counts[0], many.counts[0]) == (4, 6)
    assert many.node_count <= few.node_count + 2
    lengths = Counter(len(orbit) for orbit in many.stacks.orbits if len(orbit) > 1)
    assert set(lengths) <= {4, 5, 6}, "at the ends of the loop the neighbours are others"
    assert lengths[6] > sum(lengths.values()) / 2


def test_products_with_a_layer_cut_out_of_stacked_weights_are_tensor_parallel_too() -> None:
    def splits(scanned: bool) -> list[str]:
        function, *arguments = models.inference(models.Model("llama", scanned=scanned), 8)
        document = import_stablehlo(trace_function(function, *arguments).text, "t")
        graph = load_graph(GraphDocument.model_validate(document), Mesh.parse("4"))
        (layout,) = [each for each in list_baselines(graph, Mesh.parse("4")) if each.name == "Megatron tensor parallel"]
        products = [op for op in graph.ops if op.op == "einsum"]
        return sorted(f"{op.rule.pattern} {layout.options[op.id]}" for op in products)

    assert splits(scanned=True) == splits(scanned=False)
    assert any("(0,)" in each for each in splits(scanned=True))
