"""What was captured as a graph document.

Ids are the names of the captured graph's nodes; parameters of a training step have their own. Tied weights are one
input, under the first of their names. What no output depends on, inputs included, is left out, and so are reshapes
that stand in the way. A call without a row is planned replicated, and a warning names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from planner.errors import UnsupportedOp
from planner.frontends.simplify_reshapes import simplify_reshapes
from planner.frontends.torch.aten_call import AtenValue, Node
from planner.frontends.torch.exported_graph import ExportedGraph
from planner.frontends.torch.op_table import ATEN
from planner.frontends.torch.translation import TorchTranslation
from planner.frontends.unknown_ops import UnknownOpWarning, list_operations
from planner.frontends.zoo.graph_writer import ZooInput, ZooWriter
from planner.frontends.zoo.training import append_update, next_values
from planner.ir.graph import TensorType


@dataclass(frozen=True, slots=True)
class DocumentBody:
    """Inputs and nodes of a document, as its entries; the outputs, and the parameters' gradients by id."""

    inputs: list[dict[str, Any]]
    nodes: list[Node]
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
    return {
        "format": "shardplan.graph",
        "version": 1,
        "name": name,
        "producer": {"name": captured.producer, "version": torch.__version__.partition("+")[0]},
        "inputs": body.inputs,
        "nodes": body.nodes,
        "outputs": body.outputs,
        "annotations": [],
    }


def _translate_body(captured: ExportedGraph, name: str) -> DocumentBody:
    translation = TorchTranslation(captured)
    for node in captured.graph.nodes:
        translation.add(node)
    if translation.refused:
        raise _unsupported_error(translation.refused, name)
    if translation.unknown:
        warnings.warn(_warn_unknown(translation.unknown, name), UnknownOpWarning, stacklevel=3)
    outputs = [value.id for value in translation.outputs]
    gradients = {parameter: value.id for parameter, value in translation.gradients.items()}
    ends = [*outputs, *gradients.values()]
    shapes = {entry["id"]: tuple(entry["shape"]) for entry in translation.inputs}
    nodes, kept = simplify_reshapes(_prune_nodes(translation.nodes, ends), ends, shapes)
    read = {value for node in nodes for value in node["inputs"]} | set(kept)
    inputs = [entry for entry in translation.inputs if entry["id"] in read]
    return DocumentBody(inputs, nodes, kept[: len(outputs)], dict(zip(gradients, kept[len(outputs) :], strict=True)))


def _append_update(body: DocumentBody, optimizer: str) -> DocumentBody:
    """The same, the gradients taken up by the optimizer: its states are inputs, what it makes outputs."""
    types = {entry["id"]: TensorType(tuple(entry["shape"]), entry["dtype"]) for entry in body.inputs}
    dtypes = [entry["dtype"] for entry in body.inputs if entry["kind"] == "parameter"]
    writer = ZooWriter("f64" if "f64" in dtypes else dtypes[0], "update.")
    writer.inputs += [
        ZooInput(AtenValue(entry["id"], types[entry["id"]]), entry["kind"], entry["name"]) for entry in body.inputs
    ]
    append_update(
        writer,
        {name: AtenValue(made, types[name]) for name, made in body.gradients.items() if name in types},
        optimizer,
    )
    written = writer.document("", next_values(writer))
    return DocumentBody(written["inputs"], [*body.nodes, *written["nodes"]], [*body.outputs, *written["outputs"]], {})


def _prune_nodes(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes that some output depends on, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        ids = {node["id"], *(f"{node['id']}:{k}" for k in range(1, len(node["outputs"])))}
        if ids & wanted:
            wanted.update(node["inputs"])
            kept.append(node)
    return kept[::-1]


def _warn_unknown(calls: Mapping[str, Sequence[str]], name: str) -> str:
    told = "; ".join(list_operations(calls, " in "))
    return f"{name}: planned replicated, as no row says them: {told}"


def _unsupported_error(refused: Mapping[str, Sequence[str]], name: str) -> UnsupportedOp:
    """An error with the most frequent calls in its message, and everything in its notes."""
    told = list_operations(refused, " in ")
    error = UnsupportedOp(
        "ATen calls that cannot be said",
        where=name,
        got="; ".join(told),
        wanted="arguments that the rows of planner.frontends.torch.op_table.ATEN take",
    )
    error.add_note("refused:\n  " + "\n  ".join(told))
    error.add_note("known: " + ", ".join(ATEN))
    return error
