"""A captured model: a graph of ATen calls, and the meaning of its placeholders and results."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import Graph, GraphModule, Node

from planner.errors import InvalidGraph
from planner.frontends.torch import inline_regions, patterns
from planner.frontends.torch.complex_pairs import split_complex
from planner.frontends.torch.location import refuse_data_dependent, refuse_sparse
from planner.frontends.torch.smaller_calls import BEFORE_GRADIENT

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

    `gradients` maps the id of a parameter to the node that computes its gradient, `next_values` the id of a buffer that
    the forward pass writes to the node of what it holds afterwards.
    """

    graph: Graph
    placeholders: Mapping[str, Placeholder]
    results: tuple[Node, ...]
    producer: str = "torch.export"
    gradients: Mapping[str, Node] = field(default_factory=dict)
    next_values: Mapping[str, Node] = field(default_factory=dict)


def from_program(program: ExportedProgram, name: str) -> ExportedGraph:
    """Return the graph of an exported program, with small pieces combined.

    Raises InvalidGraph for a program that writes to its inputs.
    """
    program = functionalize(program, name)
    graph = Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    inline_regions.inline_regions(graph, program.graph_module)
    split_complex(graph, program, name)
    patterns.replace_patterns(graph)
    (output,) = graph.find_nodes(op="output")
    placeholders = _placeholders(program, graph)
    written = [placeholders[name].id for name in written_buffers(program).values()]
    following, results = output.args[0][: len(written)], output.args[0][len(written) :]
    return ExportedGraph(
        graph,
        placeholders,
        tuple(result for result in results if isinstance(result, Node)),
        next_values=dict(zip(written, following, strict=True)),
    )


def decompose_and_combine(program: ExportedProgram) -> None:
    """Replace patterns in place and update the program's signature."""
    for replaced, replacement in patterns.replace_patterns(program.graph).items():
        program.graph_signature.replace_all_uses(replaced, replacement)
    program.graph_module.recompile()


def functionalize(program: ExportedProgram, name: str) -> ExportedProgram:
    """The same program without in-place calls, whose first results are what the buffers that it writes hold afterwards.

    The calls of `BEFORE_GRADIENT` are written as smaller ones, and checks of data are left out. Raises InvalidGraph for
    a program that writes to its inputs.
    """
    _drop_assertions(program.graph)
    refuse_data_dependent(program.graph, name)
    refuse_sparse(program.graph, name)
    if any(_needs_tracing(node) for node in _all_nodes(program)):
        inline_regions.inline_regions(program.graph, program.graph_module)
        program.graph_module.recompile()
        _move_state(program)
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # torch's own
            program = _write_smaller_calls(program, name)
    written = [s.target for s in program.graph_signature.output_specs if s.kind not in (*_RESULTS, _WRITTEN)]
    if written:
        raise InvalidGraph("the forward pass writes to its inputs", where=name, got=written, wanted="no writes")
    return program


def _all_nodes(program: ExportedProgram) -> Iterator[Node]:
    """Yield the nodes of a program, those of its regions under another mode too."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def _needs_tracing(node: Node) -> bool:
    """Return whether a program with this node is traced again: for a write, a region of casts, or smaller calls."""
    casts = node.target is inline_regions.WITH_CASTS and bool(node.args[2])
    return node.target in BEFORE_GRADIENT or casts or _writes_in_place(node)


def _write_smaller_calls(program: ExportedProgram, name: str) -> ExportedProgram:
    """Trace a program again without in-place calls. Raises InvalidGraph where torch cannot."""
    try:
        return program.run_decompositions(dict(BEFORE_GRADIENT))
    except Exception as failure:  # torch runs the model's calls, and may raise anything
        got = f"{type(failure).__name__}: {failure}".splitlines()[0]
        wanted = "calls that torch can trace twice"
        raise InvalidGraph("torch.export cannot trace the model", where=name, got=got, wanted=wanted) from failure


def _drop_assertions(graph: Graph) -> None:
    """Erase in place the calls that check data, and what only they read."""
    for node in graph.nodes:  # torch.export leaves some readers out
        for source in node.all_input_nodes:
            source.users.setdefault(node)
    for node in reversed(graph.nodes):
        checks = node.op == "call_function" and not node.users and not isinstance(node.target, HigherOrderOperator)
        if checks and not _writes_in_place(node):
            graph.erase_node(node)


def _move_state(program: ExportedProgram) -> None:
    """Move a state on the meta device, as that of a file, in place to where the program was traced."""
    moved: dict[int, torch.Tensor] = {}
    specs = program.graph_signature.input_specs
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), specs, strict=True):
        state = program.constants if spec.kind == InputKind.BUFFER and not spec.persistent else program.state_dict
        tensor, traced = state.get(spec.target), node.meta["val"]
        if isinstance(tensor, torch.Tensor) and tensor.device != traced.device:
            trained = isinstance(tensor, torch.nn.Parameter)
            there = torch.nn.Parameter(traced, tensor.requires_grad) if trained else traced
            state[spec.target] = moved.setdefault(id(tensor), there)


def _writes_in_place(node: Node) -> bool:
    """Return whether a call writes to an operand. `detach_` does not: it concerns autograd only."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if str(node.target) == "aten.batch_norm.default":  # its schema does not say so
        return node.args[3] is not None and bool(node.args[5])
    return node.target._schema.is_mutable and str(node.target) != "aten.detach_.default"


_RESULTS, _WRITTEN = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT), OutputKind.BUFFER_MUTATION


def written_buffers(program: ExportedProgram) -> dict[str, str]:
    """Return the names of the buffers that a functional program writes, in the order of its results, each with its
    placeholder."""
    placeholder = {spec.target: spec.arg.name for spec in program.graph_signature.input_specs}
    written = [spec.target for spec in program.graph_signature.output_specs if spec.kind == _WRITTEN]
    return {target: placeholder[target] for target in written}


def _placeholders(program: ExportedProgram, graph: Graph) -> dict[str, Placeholder]:
    first, numbers = first_of_tied(program), constant_numbers(program)
    placeholders = {}
    specs = program.graph_signature.input_specs
    for node, spec in zip(graph.find_nodes(op="placeholder"), specs, strict=True):
        shown = first.get(spec.target, spec)
        name, known = shown.target or shown.arg.name, numbers.get(spec.target)
        placeholders[node.name] = Placeholder(shown.arg.name, KINDS[spec.kind], name, known)
    return placeholders


def first_of_tied(program: ExportedProgram) -> dict[str | None, InputSpec]:
    """Return, for every parameter name, the first parameter that is the same tensor."""
    first: dict[int, InputSpec] = {}
    same: dict[str | None, InputSpec] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.PARAMETER:
            same[spec.target] = first.setdefault(id(program.state_dict[spec.target]), spec)
    return same


def constant_numbers(program: ExportedProgram) -> dict[str | None, float | None]:
    """Return the tensors that the model's code made, each with its number where it has one element with storage."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.CONSTANT_TENSOR]
    return {spec.target: _constant_number(program.constants.get(spec.target)) for spec in specs}


def _constant_number(constant: Any) -> float | None:
    known = isinstance(constant, torch.Tensor) and constant.numel() == 1 and constant.device.type != "meta"
    return constant.item() if known else None


def eliminate_dead(captured: ExportedGraph) -> set[Node]:
    """Return the nodes that a result, a gradient or a next value depends on, and the placeholders of these buffers."""
    wanted: set[Node] = set()
    ends: Iterable[Node] = (*captured.results, *captured.gradients.values(), *captured.next_values.values())
    wanted.update(ends)
    for node in captured.graph.find_nodes(op="placeholder"):
        if captured.placeholders[node.name].id in captured.next_values:
            wanted.add(node)
    for node in reversed(captured.graph.nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    return wanted
