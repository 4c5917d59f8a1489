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
from planner.frontends.reshapes import without_reshapes
from planner.frontends.torch.aten import ATEN
from planner.frontends.torch.call import Node, Value
from planner.frontends.torch.captured import Captured
from planner.frontends.torch.translation import Translation
from planner.frontends.unknown import UnknownOpWarning, listed
from planner.frontends.zoo.training import replaced, update
from planner.frontends.zoo.writer import Input, Writer
from planner.model.graph import TensorType


@dataclass(frozen=True, slots=True)
class Body:
    """Inputs and nodes of a document, as its entries; the outputs, and the parameters' gradients by id."""

    inputs: list[dict[str, Any]]
    nodes: list[Node]
    outputs: list[str]
    gradients: Mapping[str, str]


def graph_document(captured: Captured, name: str, optimizer: str | None = None) -> dict[str, Any]:
    """The graph document, as plain JSON values; with the optimizer's update of what has a gradient.

    Raises UnsupportedOp naming every call that cannot be said (all of them, with the known ones, in its notes) and
    InvalidGraph for a shape that is not fixed. Warns of calls that are planned replicated.
    """
    body = _body(captured, name)
    if optimizer is not None:
        body = _updated(body, optimizer)
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


def _body(captured: Captured, name: str) -> Body:
    translation = Translation(captured)
    for node in captured.graph.nodes:
        translation.add(node)
    if translation.refused:
        raise _unsupported(translation.refused, name)
    if translation.unknown:
        warnings.warn(_unknown(translation.unknown, name), UnknownOpWarning, stacklevel=3)
    outputs = [value.id for value in translation.outputs]
    gradients = {parameter: value.id for parameter, value in translation.gradients.items()}
    ends = [*outputs, *gradients.values()]
    shapes = {entry["id"]: tuple(entry["shape"]) for entry in translation.inputs}
    nodes, kept = without_reshapes(_needed(translation.nodes, ends), ends, shapes)
    read = {value for node in nodes for value in node["inputs"]} | set(kept)
    inputs = [entry for entry in translation.inputs if entry["id"] in read]
    return Body(inputs, nodes, kept[: len(outputs)], dict(zip(gradients, kept[len(outputs) :], strict=True)))


def _updated(body: Body, optimizer: str) -> Body:
    """The same, the gradients taken up by the optimizer: its states are inputs, what it makes outputs."""
    types = {entry["id"]: TensorType(tuple(entry["shape"]), entry["dtype"]) for entry in body.inputs}
    dtypes = [entry["dtype"] for entry in body.inputs if entry["kind"] == "parameter"]
    writer = Writer("f64" if "f64" in dtypes else dtypes[0], "update.")
    writer.inputs += [
        Input(Value(entry["id"], types[entry["id"]]), entry["kind"], entry["name"]) for entry in body.inputs
    ]
    update(
        writer, {name: Value(made, types[name]) for name, made in body.gradients.items() if name in types}, optimizer
    )
    written = writer.document("", replaced(writer))
    return Body(written["inputs"], [*body.nodes, *written["nodes"]], [*body.outputs, *written["outputs"]], {})


def _needed(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes that some output depends on, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        ids = {node["id"], *(f"{node['id']}:{k}" for k in range(1, len(node["outputs"])))}
        if ids & wanted:
            wanted.update(node["inputs"])
            kept.append(node)
    return kept[::-1]


def _unknown(calls: Mapping[str, Sequence[str]], name: str) -> str:
    told = "; ".join(listed(calls, " in "))
    return f"{name}: planned replicated, as no row says them: {told}"


def _unsupported(refused: Mapping[str, Sequence[str]], name: str) -> UnsupportedOp:
    """An error with the most frequent calls in its message, and everything in its notes."""
    told = listed(refused, " in ")
    error = UnsupportedOp(
        "ATen calls that cannot be said",
        where=name,
        got="; ".join(told),
        wanted="arguments that the rows of planner.frontends.torch.aten.ATEN take",
    )
    error.add_note("refused:\n  " + "\n  ".join(told))
    error.add_note("known: " + ", ".join(ATEN))
    return error
