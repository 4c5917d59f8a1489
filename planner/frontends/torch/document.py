"""An exported program as a graph document.

Ids are the names of the exported graph's nodes. Tied weights are one input, under the first of their names.
What no output depends on, inputs included, is left out, and so are reshapes that stand in the way.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from planner.errors import InvalidGraph, UnsupportedOp
from planner.frontends.torch.aten import ATEN
from planner.frontends.torch.call import Node
from planner.frontends.torch.reshapes import without_reshapes
from planner.frontends.torch.translation import Translation

SHOWN_SCOPES = 3


def graph_document(program: ExportedProgram, name: str) -> dict[str, Any]:
    """The graph document of `program`, as plain JSON values.

    Raises UnsupportedOp naming every ATen call outside the table (all of them, with the known ones, in its
    notes), InvalidGraph for a shape that is not fixed or a program that writes to its state.
    """
    program = _functional(program, name)
    translation = Translation(program)
    for node in program.graph.nodes:
        translation.add(node)
    if translation.unknown:
        raise _unsupported(translation.unknown, name)
    outputs = [value.id for value in translation.outputs]
    shapes = {entry["id"]: tuple(entry["shape"]) for entry in translation.inputs}
    nodes, outputs = without_reshapes(_needed(translation.nodes, outputs), outputs, shapes)
    read = {value for node in nodes for value in node["inputs"]} | set(outputs)
    return {
        "format": "shardplan.graph",
        "version": 1,
        "name": name,
        "producer": {"name": "torch.export", "version": torch.__version__.partition("+")[0]},
        "inputs": [entry for entry in translation.inputs if entry["id"] in read],
        "nodes": nodes,
        "outputs": outputs,
        "annotations": [],
    }


def _functional(program: ExportedProgram, name: str) -> ExportedProgram:
    """The same program without in-place calls. `detach_` is none: it concerns autograd only."""
    calls = [node.target for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    if any(call._schema.is_mutable and str(call) != "aten.detach_.default" for call in calls):
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # torch's own
            program = program.run_decompositions({})
    written = [s.target for s in program.graph_signature.output_specs if s.kind != OutputKind.USER_OUTPUT]
    if written:
        raise InvalidGraph("the forward pass writes to its state", where=name, got=written, wanted="no writes")
    return program


def _needed(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes that some output depends on, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        ids = {node["id"], *(f"{node['id']}:{k}" for k in range(1, len(node["outputs"])))}
        if ids & wanted:
            wanted.update(node["inputs"])
            kept.append(node)
    return kept[::-1]


def _unsupported(unknown: dict[str, list[str]], name: str) -> UnsupportedOp:
    """An error with the most frequent calls in its message, and everything in its notes."""
    calls = sorted(unknown.items(), key=lambda item: (-len(item[1]), item[0]))
    listed = [f"{call}, {len(scopes)}x in {_places(scopes)}" for call, scopes in calls]
    error = UnsupportedOp(
        "ATen calls outside the table",
        where=name,
        got="; ".join(listed),
        wanted=f"the {len(ATEN)} overloads of planner.frontends.torch.aten.ATEN, with arguments their rows take",
    )
    error.add_note("unknown:\n  " + "\n  ".join(listed))
    error.add_note("known: " + ", ".join(ATEN))
    return error


def _places(scopes: Sequence[str]) -> str:
    different = list(dict.fromkeys(scope or "the model itself" for scope in scopes))
    return ", ".join(different[:SHOWN_SCOPES]) + (", …" if len(different) > SHOWN_SCOPES else "")
