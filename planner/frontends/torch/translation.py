"""A document while it grows: node by node, inputs and calls of an exported program become ours."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Node as FxNode
from torch.fx.node import map_arg

from planner.errors import InvalidGraph, ShardplanError
from planner.frontends.torch.aten import ATEN
from planner.frontends.torch.call import Call, Node, NotCovered, Value, dtype_name, finite
from planner.model.graph import TensorType

KINDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}


class Translation:
    """What each node of the exported graph has become.

    `nodes` and `inputs` are entries of the document, `outputs` its outputs; `unknown` holds, for each call
    without a row, the scopes it stands in. Calls that depend on such a call are not translated.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[Value] = []
        self.unknown: dict[str, list[str]] = defaultdict(list)
        self._inputs: dict[str, dict[str, Any]] = {}
        self._values: dict[FxNode, Any] = {}
        self._live = _live(program)
        self._constants = program.constants
        self._specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        self._first = _first_of_tied(program)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """In the order of the program's signature."""
        return [self._inputs[name] for name in self._specs if name in self._inputs]

    def add(self, node: FxNode) -> None:
        """Translates `node`, unless nothing needs it. Raises InvalidGraph for a shape that is not fixed."""
        if node not in self._live or node.op == "get_attr":
            return
        if node.op == "output":
            results = [made for made in node.args[0] if isinstance(made, FxNode)]
            self.outputs = [self._values[made] for made in results if made in self._values]
        elif node.op == "call_function" and node.target is not operator.getitem and str(node.target) not in ATEN:
            self.unknown[str(node.target)].append(_scope(node))
        elif all(source in self._values for source in node.all_input_nodes):
            self._translate(node)

    def _translate(self, node: FxNode) -> None:
        try:
            self._values[node] = self._input(node) if node.op == "placeholder" else self._result(node)
        except NotCovered as reason:
            self.unknown[f"{node.target} ({reason})"].append(_scope(node))
        except ShardplanError as error:
            raise error.at(f"{_scope(node)} {node.name}".strip()) from error

    def _input(self, node: FxNode) -> Value:
        """A tensor from outside. A constant of one known element is a `full` instead."""
        spec = self._specs[node.name]
        spec = self._first.get(spec.target, spec)
        value = Value(spec.arg.name, tensor_type(node.meta["val"]))
        constant = self._constants.get(spec.target)
        if spec.kind == InputKind.CONSTANT_TENSOR and _is_known_scalar(constant):
            call = Call(node.name, "", {}, (value.type,), self.nodes, len(self.nodes))
            return call.emit("full", value=finite(constant.item(), value.dtype))
        entry = {"id": value.id, "kind": KINDS[spec.kind], "name": spec.target or value.id}
        self._inputs[value.id] = entry | {"shape": list(value.shape), "dtype": value.dtype}
        return value

    def _result(self, node: FxNode) -> Any:
        if node.target is operator.getitem:
            return self._values[node.args[0]][node.args[1]]
        made = node.meta["val"]
        first, *others = made if isinstance(made, (list, tuple)) else [made]
        # what a call would save for its gradient is empty where there is none
        results = tuple(map(tensor_type, (first, *(other for other in others if other.numel()))))
        arguments = _arguments(node, self._values)
        call = Call(node.name, _scope(node), arguments, results, self.nodes, len(self.nodes))
        return ATEN[str(node.target)](call)


def tensor_type(tensor: torch.Tensor) -> TensorType:
    """Raises InvalidGraph for a dim that is not a fixed number, NotCovered for a dtype without a name."""
    if not all(isinstance(dim, int) for dim in tensor.shape):
        got = str(list(tensor.shape))
        raise InvalidGraph("dynamic dim", got=got, wanted="fixed sizes: export without dynamic_shapes")
    return TensorType(tuple(map(int, tensor.shape)), dtype_name(tensor.dtype))


def _arguments(node: FxNode, values: Mapping[FxNode, Any]) -> dict[str, Any]:
    """Arguments by the names of the overload's schema, defaults included."""
    bound = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args):
            bound[argument.name] = node.args[position]
        elif argument.name in node.kwargs or argument.has_default_value():
            bound[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return {name: map_arg(given, values.__getitem__) for name, given in bound.items()}


def _live(program: ExportedProgram) -> set[FxNode]:
    """The nodes that the output depends on."""
    live: set[FxNode] = set()
    for node in reversed(program.graph.nodes):
        if node.op == "output" or node in live:
            live.update((node, *node.all_input_nodes))
    return live


def _first_of_tied(program: ExportedProgram) -> dict[str | None, InputSpec]:
    """Parameter name -> the first parameter that is the same tensor."""
    first: dict[int, InputSpec] = {}
    same: dict[str | None, InputSpec] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.PARAMETER:
            same[spec.target] = first.setdefault(id(program.state_dict[spec.target]), spec)
    return same


def _is_known_scalar(constant: Any) -> bool:
    return isinstance(constant, torch.Tensor) and constant.numel() == 1 and constant.device.type != "meta"


def _scope(node: FxNode) -> str:
    """The path of the innermost module that the call stands in."""
    stack = node.meta.get("nn_module_stack") or {"": ("",)}
    return str(list(stack.values())[-1][0])
