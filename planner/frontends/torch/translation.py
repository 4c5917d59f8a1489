"""The walk over a captured graph: placeholders become inputs of the document, calls become nodes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph
from torch.fx import Node as FxNode
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from planner.errors import InvalidGraph, ShardplanError
from planner.frontends.graph_builder import DocumentValue, Entry, GraphBuilder, clamp_infinity
from planner.frontends.torch.aten_call import DTYPES, AtenCall, dtype_name
from planner.frontends.torch.decompose import decompose
from planner.frontends.torch.exported_graph import ExportedGraph, eliminate_dead
from planner.frontends.torch.location import scope_of, source_line_of
from planner.frontends.torch.op_table import ATEN
from planner.frontends.uncovered_ops import NotCovered, NotExpressible
from planner.ir.graph import TensorType


class TorchTranslation:
    """What each node of the captured graph becomes; `builder` holds the document."""

    def __init__(self, captured: ExportedGraph) -> None:
        self.builder = GraphBuilder()
        self._captured = captured
        self._values: dict[FxNode, Any] = {}
        self._live = eliminate_dead(captured)

    @property
    def inputs(self) -> list[Entry]:
        """The inputs in the order of the placeholders."""
        order = dict.fromkeys(entry.id for entry in self._captured.placeholders.values())
        return [self.builder.inputs[name] for name in order if name in self.builder.inputs]

    @property
    def outputs(self) -> list[DocumentValue]:
        """The values of the captured graph's results."""
        return [self._values[made] for made in self._captured.results if self._values.get(made) is not None]

    @property
    def gradients(self) -> dict[str, DocumentValue]:
        """The gradients by the ids of their parameters; those without elements have none."""
        found = self._captured.gradients.items()
        return {parameter: self._values[made] for parameter, made in found if self._values.get(made) is not None}

    def next_values(self) -> dict[str, DocumentValue]:
        """Return what takes the place of each written buffer, each a value of its own that is no other output."""
        other = {*self.builder.inputs, *(value.id for value in self.outputs)}
        values = {}
        for name, made in self._captured.next_values.items():
            value = self._values.get(made)
            if value is not None:
                values[name] = self.builder.emit("identity", [value]) if value.id in other else value
                other.add(value.id)
        return values

    def add(self, node: FxNode) -> None:
        """Translate `node`, unless no result depends on it. Raises InvalidGraph for a shape that is not fixed."""
        if node not in self._live or node.op == "output":
            return
        if node.op == "get_attr":
            self._values[node] = None  # a subgraph, which only control flow reads
        elif all(source in self._values for source in node.all_input_nodes):
            self._translate(node)

    def _translate(self, node: FxNode) -> None:
        try:
            self._values[node] = self._input(node) if node.op == "placeholder" else self._result(node)
        except NotCovered as reason:
            self.builder.uncovered.refused[f"{node.target} ({reason})"].append(source_line_of(node))
        except ShardplanError as error:
            raise error.at(f"{source_line_of(node)} {node.name}".strip()) from error
        except Exception as failure:  # a call that no row expects, or a graph of another version of torch
            got, where = f"{type(failure).__name__}: {failure}", f"{source_line_of(node)} {node.name}"
            wanted = "arguments that torch documents"
            raise InvalidGraph(f"{node.target} cannot be translated", where=where, got=got, wanted=wanted) from failure

    def _input(self, node: FxNode) -> DocumentValue | None:
        """Add an input; a constant with one known element becomes a `full`.

        None stands for an argument that is no tensor, and for one without elements.
        """
        given = node.meta.get("val")
        if not isinstance(given, torch.Tensor) or 0 in given.shape:
            return None
        entry, kind = self._captured.placeholders[node.name], tensor_type(given)
        if entry.known is None:
            return self.builder.add_input(entry.id, entry.kind, kind, name=entry.name)
        with self.builder.within(""):
            value = clamp_infinity(entry.known, kind.dtype)
            return self.builder.emit_all("full", [], [kind], attrs={"value": value}, node=node.name)[0]

    def _result(self, node: FxNode) -> Any:
        if node.target is operator.getitem:
            return self._values[node.args[0]][node.args[1]]
        call = AtenCall(node.name, _result_types(node), self.builder, _arguments(node, self._values))
        if not call.results:  # a tensor without elements, which a concatenation leaves out
            return None
        phase = "backward" if node.meta.get("partitioner_tag") == "is_backward" else "forward"
        with self.builder.within(scope_of(node), phase, call=node.name):
            return self._emit(call, node)

    def _emit(self, call: AtenCall, node: FxNode) -> Any:
        """Emit a call by rows, else replicated."""
        start = len(self.builder.nodes)
        try:
            return self._emit_rows(call, node, self._values)
        except NotExpressible:
            raise
        except NotCovered as reason:
            del self.builder.nodes[start:]
            return self._emit_replicated(call, node, f" ({reason})" if str(node.target) in ATEN else "")

    def _emit_rows(self, call: AtenCall, node: FxNode, values: Mapping[FxNode, Any]) -> Any:
        """Emit a call by its row, else by the rows of torch's decomposition. Raises NotCovered if that has none."""
        row, start = ATEN.get(str(node.target)), len(self.builder.nodes)
        reason = NotCovered(f"{node.target} has no row")
        try:
            if row is not None:
                result = row(call)
                call.demand("a result that its row leaves out is read", not _leaves_out(node, result))
                return result
        except NotExpressible:
            raise
        except NotCovered as refusal:
            reason = refusal
        del self.builder.nodes[start:]
        graph = decompose(node)
        if graph is None:
            raise reason
        try:
            return self._emit_decomposed(graph, [values[each] for each in _operands(node)])
        except NotCovered as piece:
            raise reason from piece

    def _emit_decomposed(self, graph: Graph, operands: Sequence[Any]) -> Any:
        """Emit the smaller calls of a decomposition and return its results."""
        values: dict[FxNode, Any] = dict(zip(graph.find_nodes(op="placeholder"), operands, strict=True))
        for node in (each for each in graph.nodes if each.op == "call_function"):
            if node.target is operator.getitem:
                values[node] = values[node.args[0]][node.args[1]]
            else:
                call = AtenCall("", _result_types(node), self.builder, _arguments(node, values))
                values[node] = self._emit_rows(call, node, values) if call.results else None
        (output,) = graph.find_nodes(op="output")
        return map_arg(output.args[0], values.__getitem__)

    def _emit_replicated(self, call: AtenCall, node: FxNode, reason: str) -> list[DocumentValue] | DocumentValue:
        """Emit a node under the name that the op has in torch, with the arguments that JSON can hold.

        Raises NotCovered for a call that writes to its arguments or whose results have no fixed shape.
        """
        schema = node.target._schema
        call.demand("a call that writes to its arguments", not schema.is_mutable)
        call.demand("no results of fixed shape", len(call.results) == len(schema.returns))
        operands = [
            each for given in call.arguments.values() for each in _listed(given) if isinstance(each, DocumentValue)
        ]
        attrs = {name: given for name, given in call.arguments.items() if _is_plain(given)}
        results = self.builder.emit_all(str(node.target), operands, call.results, attrs=attrs, node=call.id)
        self.builder.uncovered.replicated[f"{node.target}{reason}"].append(source_line_of(node))
        return results[0] if len(results) == 1 else results


INSTEAD = {
    "cond": "a branch: write torch.where of both results",
    "while_loop": "a loop: write it in Python, with a known number of turns",
    "scan": "a loop: write it in Python",
    "associative_scan": "a loop: write it in Python, or as cumsum, cumprod or cummax",
    "flex_attention": "a score written in Python: write scaled_dot_product_attention with a mask",
}
"""What to write in place of calls that are no operators."""


def _leaves_out(node: FxNode, results: Any) -> bool:
    """Return whether the forward pass reads a result for which a row has no value."""
    return any(
        results[reader.args[1]] is None
        and not all(_is_backward(each) for each in reader.users)
        and _has_elements(reader.meta["val"])
        for reader in node.users
        if reader.target is operator.getitem and isinstance(results, (list, tuple))
    )


def _is_backward(node: FxNode) -> bool:
    return node.meta.get("partitioner_tag") == "is_backward" or "backward" in str(node.target)


def _operands(node: FxNode) -> list[FxNode]:
    """Return the operands of a call in their order, repeated ones too."""
    return [each for each in tree_leaves((node.args, node.kwargs)) if isinstance(each, FxNode)]


def _result_types(node: FxNode) -> tuple[TensorType, ...]:
    """Return the types of a call's results that have elements."""
    tensors = [each for each in _listed(node.meta["val"]) if isinstance(each, torch.Tensor) and _has_elements(each)]
    # Results after the first may have dtypes of their own, such as the seeds that attention kernels save.
    return tuple(tensor_type(each) for each in tensors if each is tensors[0] or each.dtype in DTYPES.values())


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, (list, tuple)) else [given]


def _is_plain(given: Any) -> bool:
    """Return whether an argument is a number, a text or a list of these, which JSON can hold."""
    return all(isinstance(each, (bool, int, float, str)) for each in _listed(given))


def _has_elements(value: torch.Tensor) -> bool:
    """Return whether a result has elements; results saved for an absent gradient are empty, unwanted ones None."""
    return not any(isinstance(dim, int) and dim == 0 for dim in value.shape)


def tensor_type(tensor: torch.Tensor) -> TensorType:
    """Return a tensor's type. Raises InvalidGraph for a dim that is not fixed, NotCovered for an unknown dtype."""
    if not all(isinstance(dim, int) for dim in tensor.shape):
        got = str(list(tensor.shape))
        raise InvalidGraph("dynamic dim", got=got, wanted="fixed sizes: export without dynamic_shapes")
    return TensorType(tuple(map(int, tensor.shape)), dtype_name(tensor.dtype))


def _arguments(node: FxNode, values: Mapping[FxNode, Any]) -> dict[str, Any]:
    """Return the arguments by the names of the overload's schema, with defaults. Raises NotCovered for control flow."""
    if not isinstance(node.target, torch._ops.OpOverload):
        raise NotCovered(INSTEAD.get(str(node.target), "control flow or a call that is no operator: write it without"))
    bound = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args):
            bound[argument.name] = node.args[position]
        elif argument.name in node.kwargs or argument.has_default_value():
            bound[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return {name: map_arg(given, values.__getitem__) for name, given in bound.items()}
