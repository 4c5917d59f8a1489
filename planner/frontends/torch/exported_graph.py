"""A captured model: a graph of ATen calls, and the meaning of its placeholders and results."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import Graph, Node

from planner.errors import InvalidGraph
from planner.frontends.torch import inline_regions, patterns

KINDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}


@dataclass(frozen=True, slots=True)
class Placeholder:
    """An input of the document; `known` is the number of a constant with one element, else None."""

    id: str
    kind: str
    name: str
    known: float | None = None


@dataclass(frozen=True)
class ExportedGraph:
    """A graph with its `placeholders` by node name, in the order of the document's inputs; tied parameters share one.

    `gradients` maps the id of a parameter to the node that computes its gradient.
    """

    graph: Graph
    placeholders: Mapping[str, Placeholder]
    results: tuple[Node, ...]
    producer: str = "torch.export"
    gradients: Mapping[str, Node] = field(default_factory=dict)


def from_program(program: ExportedProgram, name: str) -> ExportedGraph:
    """Return the graph of an exported program, with small pieces combined.

    Raises InvalidGraph for a program that writes to its state.
    """
    program = functionalize(program, name)
    graph = Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    inline_regions.inline_regions(graph, program.graph_module)
    patterns.replace_patterns(graph)
    (output,) = graph.find_nodes(op="output")
    results = tuple(result for result in output.args[0] if isinstance(result, Node))
    return ExportedGraph(graph, _placeholders(program, graph), results)


def decompose_and_combine(program: ExportedProgram) -> None:
    """Replace patterns in place and update the program's signature."""
    for replaced, replacement in patterns.replace_patterns(program.graph).items():
        program.graph_signature.replace_all_uses(replaced, replacement)
    program.graph_module.recompile()


def functionalize(program: ExportedProgram, name: str) -> ExportedProgram:
    """The same program without in-place calls. `detach_` is none: it concerns autograd only."""
    calls = [node.target for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    if any(call._schema.is_mutable and str(call) != "aten.detach_.default" for call in calls):
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # torch's own
            program = program.run_decompositions({})
    written = [s.target for s in program.graph_signature.output_specs if s.kind not in _RESULTS]
    if written:
        raise InvalidGraph("the forward pass writes to its state", where=name, got=written, wanted="no writes")
    return program


_RESULTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


def _placeholders(program: ExportedProgram, graph: Graph) -> dict[str, Placeholder]:
    first = first_of_tied(program)
    placeholders = {}
    specs = program.graph_signature.input_specs
    for node, spec in zip(graph.find_nodes(op="placeholder"), specs, strict=True):
        shown = first.get(spec.target, spec)
        known = _constant_number(program.constants.get(spec.target)) if spec.kind == InputKind.CONSTANT_TENSOR else None
        placeholders[node.name] = Placeholder(shown.arg.name, KINDS[spec.kind], shown.target or shown.arg.name, known)
    return placeholders


def first_of_tied(program: ExportedProgram) -> dict[str | None, InputSpec]:
    """Return, for every parameter name, the first parameter that is the same tensor."""
    first: dict[int, InputSpec] = {}
    same: dict[str | None, InputSpec] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.PARAMETER:
            same[spec.target] = first.setdefault(id(program.state_dict[spec.target]), spec)
    return same


def _constant_number(constant: Any) -> float | None:
    known = isinstance(constant, torch.Tensor) and constant.numel() == 1 and constant.device.type != "meta"
    return constant.item() if known else None


def eliminate_dead(captured: ExportedGraph) -> set[Node]:
    """Return the nodes that a result or a gradient depends on."""
    wanted: set[Node] = set()
    ends: Iterable[Node] = (*captured.results, *captured.gradients.values())
    wanted.update(ends)
    for node in reversed(captured.graph.nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    return wanted
