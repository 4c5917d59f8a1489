"""Documents imported from StableHLO text: kinds of arguments, the results that replace them, annotations, loops."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any

import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.frontends.stablehlo import import_jax, import_stablehlo, import_text, trace_function
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.mesh import Mesh
from tests.testing.stablehlo_texts import F32, SHARDY, main_of

jax = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
jnp, lax = jax.numpy, jax.lax
models = import_module("examples.jax_models")

pytestmark = pytest.mark.frameworks("jax")

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def step_document(optimizer: str, scanned: bool = False, layers: int = 2) -> dict[str, Any]:
    model = models.Model("llama", layers=layers, scanned=scanned)
    function, *arguments = models.training(model, 4, optimizer)
    return import_stablehlo(trace_function(function, *arguments).text, "step")


def test_arguments_of_a_training_step_have_kinds_and_their_next_values() -> None:
    document = step_document("adam")
    inputs = {entry["name"]: entry for entry in document["inputs"]}
    assert inputs["parameters['embedding']"]["kind"] == "parameter"
    assert inputs["state['first']['embedding']"]["kind"] == inputs["state['step']"]["kind"] == "optimizer_state"
    assert inputs["inputs"]["kind"] == inputs["labels"]["kind"] == "input"
    assert [name for name, entry in inputs.items() if "next" not in entry] == ["inputs", "labels"]
    nexts = [entry["next"] for entry in document["inputs"] if "next" in entry]
    assert sorted(nexts) == sorted(document["outputs"][1:])


def test_ops_of_a_training_step_are_of_their_phase() -> None:
    document = step_document("adam")
    phases = {node["id"]: node["phase"] for node in document["nodes"]}
    assert set(phases.values()) == {"forward", "backward", "update"}
    assert {phases[name] for name in document["outputs"][1:-1]} == {"update"}
    assert phases[document["outputs"][0]] == "forward"
    readers = {name: node["phase"] for node in document["nodes"] for name in node["inputs"]}
    assert not [name for name, phase in phases.items() if phase == "update" and readers.get(name) == "forward"]


def test_kinds_can_be_given() -> None:
    found = trace_function(lambda x, tree: x @ tree["w"].T, X, {"w": X})
    kinds = {e["name"]: e["kind"] for e in import_stablehlo(found.text, "t", {"tree": "buffer"})["inputs"]}
    assert kinds == {"x": "input", "tree['w']": "buffer"}
    with pytest.raises(InvalidRequest, match="no such argument"):
        import_stablehlo(found.text, "t", {"nothing": "buffer"})
    with pytest.raises(InvalidRequest, match="kind of an argument"):
        import_stablehlo(found.text, "t", {"x": "thing"})


def test_a_donated_argument_without_an_alias_gets_the_first_output_of_its_type() -> None:
    body = f"%0 = stablehlo.tanh %a : {F32}\n%1 = stablehlo.tanh %0 : {F32}\nreturn %0, %1 : {F32}, {F32}"
    given = main_of(body, F32 + " {jax.buffer_donor = true}", f"({F32}, {F32})")
    (entry,) = import_stablehlo(given, "t")["inputs"]
    assert entry["next"] == "tanh"


def test_shardings_of_shardy_become_annotations() -> None:
    document = import_stablehlo(SHARDY, "t")
    asked = [(e["value"], e["sharding"]["split_axes"], e["required"], e["user"]) for e in document["annotations"]]
    assert asked == [
        ("arg0", [["dp"], []], False, None),
        ("identity", [[], ["tp"]], True, None),
        ("tanh", [["dp"], ["tp"]], True, None),
        ("tanh", [["tp", "dp"], []], True, "return"),
    ]
    assert load_graph(GraphDocument.model_validate(document), Mesh.parse("dp=2,tp=4")).annotations


def test_values_that_nothing_reads_are_left_out() -> None:
    body = f"%0 = stablehlo.tanh %a : {F32}\n%1 = stablehlo.sine %a : {F32}\nreturn %1 : {F32}"
    document = import_stablehlo(main_of(body), "t")
    assert [node["op"] for node in document["nodes"]] == ["sin"]


def test_the_iterations_of_a_loop_are_equal_and_have_numbered_scopes() -> None:
    document = step_document("sgd", scanned=True, layers=3)
    turns = [Counter(n["op"] for n in document["nodes"] if f"while.1[{turn}]" in n["scope"]) for turn in range(3)]
    assert turns[0]["einsum"] > 10
    assert turns[0] == turns[1] == turns[2]


def test_values_that_a_loop_stacks_for_its_backward_pass_are_read_without_a_node() -> None:
    """The concats left join the gradients of stacked parameters."""
    document = step_document("sgd", scanned=True, layers=3)
    stacked = sum(entry["name"].startswith("parameters['blocks']") for entry in document["inputs"])
    joined = [node for node in document["nodes"] if node["op"] == "concat" and len(node["inputs"]) == 3]
    assert len(joined) == stacked


def test_a_scan_has_the_same_products_as_its_unrolled_layers() -> None:
    def products(scanned: bool) -> int:
        return sum(node["op"] == "einsum" for node in step_document("sgd", scanned)["nodes"])

    assert products(scanned=True) == products(scanned=False)


def test_a_call_that_no_op_expresses_is_planned_replicated() -> None:
    found = trace_function(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (1, 1), ((1, 1), (2, 0))) + x, X)
    assert not [n for n in import_stablehlo(found.text, "t")["nodes"] if "rule" in n]
    found = trace_function(lambda x: lax.reduce_window(x, 1.0, lax.mul, (3, 3), (1, 1), "SAME"), X)
    with pytest.warns(
        UnknownOpWarning, match=r"planned replicated, .*stablehlo.reduce_window \(windows of multiply\), 1x at "
    ):
        nodes = import_stablehlo(found.text, "t")["nodes"]
    (node,) = [node for node in nodes if node["op"] == "stablehlo.reduce_window"]
    assert node["rule"].startswith("u0 u1, [] -> u2 u3; blocked")


def test_the_same_text_gives_the_same_document() -> None:
    assert step_document("sgd") == step_document("sgd")


def test_constants_come_with_their_numbers() -> None:
    made = import_text(trace_function(lambda x: x + jnp.array([[0.0, 1, 5, 2, 7, 1, 3, 3]]), X).text, "t")
    (name,) = made.constants
    assert made.constants[name].ravel().tolist() == [0, 1, 5, 2, 7, 1, 3, 3]
    assert [e["kind"] for e in made.document["inputs"] if e["id"] == name] == ["constant"]


def test_a_function_is_found_by_name() -> None:
    assert import_jax("tests.testing.jax_function:build")["name"] == "build"
