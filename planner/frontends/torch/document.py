"""What was captured as a graph document.

Ids are the names of the captured graph's nodes; parameters of a training step have their own. Tied weights are one
input, under the first of their names. What no output depends on, inputs included, is left out, and so are reshapes
that stand in the way. A call without a row is planned replicated, and a warning names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from planner.frontends.graph_builder import DocumentValue, Entry, build_document, prune_inputs, prune_nodes
from planner.frontends.simplify_reshapes import simplify_reshapes
from planner.frontends.torch.exported_graph import ExportedGraph
from planner.frontends.torch.op_table import ATEN
from planner.frontends.torch.translation import TorchTranslation
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.training import append_update, next_values
from planner.ir.graph import TensorType


@dataclass(frozen=True, slots=True)
class DocumentBody:
    """Inputs and nodes of a document, as its entries; the outputs, and the parameters' gradients by id."""

    inputs: list[Entry]
    nodes: list[Entry]
    outputs: list[str]
    gradients: Mapping[str, str]


def build_graph_document(captured: ExportedGraph, name: str, optimizer: str | None = None) -> dict[str, Any]:
    """The graph document, as plain JSON values; with the optimizer's update of what has a gradient.

    Raises UnsupportedOp naming every call that cannot be said (all of them, with the known ones, in its notes) and
    InvalidGraph for a shape that is not fixed. Warns of calls that are planned replicated.
    """
    body = _translate_body(captured, name)
    if optimizer is not None:
        body = _append_update(body, optimizer)
    producer = captured.producer, torch.__version__.partition("+")[0]
    return build_document(name, producer, inputs=body.inputs, nodes=body.nodes, outputs=body.outputs)


def _translate_body(captured: ExportedGraph, name: str) -> DocumentBody:
    translation = TorchTranslation(captured)
    for node in captured.graph.nodes:
        translation.add(node)
    translation.builder.uncovered.report(name, ATEN, framework="torch")
    outputs = [value.id for value in translation.outputs]
    gradients = {parameter: value.id for parameter, value in translation.gradients.items()}
    ends = [*outputs, *gradients.values()]
    shapes = {entry["id"]: tuple(entry["shape"]) for entry in translation.inputs}
    nodes, kept = simplify_reshapes(prune_nodes(translation.builder.nodes, ends), ends, shapes)
    inputs = prune_inputs(translation.inputs, nodes, kept)
    return DocumentBody(inputs, nodes, kept[: len(outputs)], dict(zip(gradients, kept[len(outputs) :], strict=True)))


def _append_update(body: DocumentBody, optimizer: str) -> DocumentBody:
    """The same, the gradients taken up by the optimizer: its states are inputs, what it makes outputs."""
    dtypes = [entry["dtype"] for entry in body.inputs if entry["kind"] == "parameter"]
    builder = ModelBuilder("f64" if "f64" in dtypes else dtypes[0], "update.")
    for entry in body.inputs:
        kind = TensorType(tuple(entry["shape"]), entry["dtype"])
        builder.add_input(entry["id"], entry["kind"], kind, name=entry["name"])
    gradients = body.gradients.items()
    types = {parameter.id: parameter.type for parameter in builder.parameters}
    append_update(
        builder, {name: DocumentValue(made, types[name]) for name, made in gradients if name in types}, optimizer
    )
    written = builder.document("", next_values(builder))
    return DocumentBody(written["inputs"], [*body.nodes, *written["nodes"]], [*body.outputs, *written["outputs"]], {})
