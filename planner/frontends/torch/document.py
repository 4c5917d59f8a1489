"""A captured graph as a graph document.

Ids are the names of the captured graph's nodes; parameters of a training step have the module's names. Tied weights
are one input, under the first of their names. Nodes and inputs that no output depends on are dropped, and so are
reshapes that would keep dims from being split. A call without a row is planned replicated, and a warning names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from planner.errors import InvalidRequest
from planner.frontends.graph_builder import DocumentValue, Entry, build_document, prune_inputs, prune_nodes
from planner.frontends.simplify_reshapes import simplify_reshapes
from planner.frontends.torch.exported_graph import ExportedGraph
from planner.frontends.torch.op_table import ATEN
from planner.frontends.torch.translation import TorchTranslation
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.update import Training, append_update
from planner.ir.graph import TensorType


@dataclass(frozen=True, slots=True)
class DocumentBody:
    """Inputs and nodes as entries of a document, ids of the outputs, of what takes the place of inputs, and of the
    gradients by parameter."""

    inputs: list[Entry]
    nodes: list[Entry]
    outputs: list[str]
    next_values: Mapping[str, str]
    gradients: Mapping[str, str]


def build_graph_document(captured: ExportedGraph, name: str, training: Training | None = None) -> dict[str, Any]:
    """Return the graph document as JSON values, with the optimizer's update of parameters that have a gradient.

    Raises UnsupportedOp naming the calls that cannot be expressed (its notes list all of them and the table),
    InvalidGraph for a shape that is not fixed, and InvalidRequest where no parameter is to be trained. Warns of calls
    that are planned replicated.
    """
    body = _translate_body(captured, name)
    if training is not None:
        if not body.gradients:
            wanted = "a parameter that requires a gradient and that the loss depends on"
            raise InvalidRequest("nothing to train", where=name, got="no gradient", wanted=wanted)
        body = _append_update(body, training)
    producer = captured.producer, torch.__version__.partition("+")[0]
    following = [body.next_values[entry["id"]] for entry in body.inputs if entry["id"] in body.next_values]
    return build_document(
        name,
        producer,
        inputs=body.inputs,
        nodes=body.nodes,
        outputs=[*body.outputs, *following],
        next_values=body.next_values,
    )


def _translate_body(captured: ExportedGraph, name: str) -> DocumentBody:
    translation = TorchTranslation(captured)
    for node in captured.graph.nodes:
        translation.add(node)
    translation.builder.uncovered.report(name, ATEN, framework="torch")
    outputs = [value.id for value in translation.outputs]
    following = {buffer: value.id for buffer, value in translation.next_values().items()}
    gradients = {parameter: value.id for parameter, value in translation.gradients.items()}
    ends = [*outputs, *following.values(), *gradients.values()]
    shapes = {entry["id"]: tuple(entry["shape"]) for entry in translation.inputs}
    nodes, ends = simplify_reshapes(prune_nodes(translation.builder.nodes, ends), ends, shapes)
    inputs = prune_inputs(translation.inputs, nodes, [*ends, *following])
    first, last = len(outputs), len(outputs) + len(following)
    next_values = dict(zip(following, ends[first:last], strict=True))
    return DocumentBody(inputs, nodes, ends[:first], next_values, dict(zip(gradients, ends[last:], strict=True)))


def _append_update(body: DocumentBody, training: Training) -> DocumentBody:
    """Append the optimizer's update: its states become inputs with next values, and so do the parameters."""
    dtypes = [entry["dtype"] for entry in body.inputs if entry["kind"] == "parameter"]
    builder = ModelBuilder("f64" if "f64" in dtypes else dtypes[0], "update.")
    for entry in body.inputs:
        kind = TensorType(tuple(entry["shape"]), entry["dtype"])
        builder.add_input(entry["id"], entry["kind"], kind, name=entry["name"])
    gradients = body.gradients.items()
    types = {parameter.id: parameter.type for parameter in builder.parameters}
    append_update(
        builder, {name: DocumentValue(made, types[name]) for name, made in gradients if name in types}, training
    )
    following = {**body.next_values, **{name: value.id for name, value in builder.next.items()}}
    return DocumentBody(list(builder.inputs.values()), [*body.nodes, *builder.nodes], body.outputs, following, {})
