"""The walk over a model: inputs, weights and nodes become those of the document."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from planner.errors import InvalidGraph, ShardplanError
from planner.frontends.dtypes import FROM_ONNX
from planner.frontends.graph_builder import DocumentValue, Entry, GraphBuilder, clamp_infinity
from planner.frontends.onnx.contrib_ops import find_contrib_op
from planner.frontends.onnx.liveness import OperandUses
from planner.frontends.onnx.loader import STANDARD
from planner.frontends.onnx.node_call import KnownArray, Number, OnnxNodeCall, OnnxOperand
from planner.frontends.onnx.op_table import OPERATORS
from planner.frontends.onnx.shape_inference import ShapeInference, require_fixed_shape
from planner.frontends.uncovered_ops import NotCovered, NotExpressible
from planner.ir.dtypes import is_float
from planner.ir.graph import TensorType

SCOPES = "pkg.torch.onnx.name_scopes"
"""The key under which PyTorch's exporter lists the modules around a node, outermost first, then the node."""


class OnnxTranslation:
    """The values of the document by their names in the model; `builder` holds the document.

    Nodes that depend on an operator that cannot be expressed are skipped.
    """

    def __init__(
        self, model: ModelProto, inputs: dict[str, TypeProto], reads: OperandUses, folder: Path | None
    ) -> None:
        self.builder = GraphBuilder()
        self.values: dict[str, DocumentValue] = {}
        self._inference = ShapeInference(model, inputs, reads, folder)
        self._reads = reads
        self._version = max((entry.version for entry in model.opset_import if entry.domain in STANDARD), default=1)
        self._kinds = dict.fromkeys(inputs, "input") | {tensor.name: "parameter" for tensor in model.graph.initializer}
        self._lost: set[str] = set()

    @property
    def inputs(self) -> list[Entry]:
        """Inputs in the model's order, then weights in the model's order, then tables of constants."""
        inputs = self.builder.inputs
        return [inputs[name] for name in dict.fromkeys((*self._kinds, *inputs)) if name in inputs]

    def add(self, node: NodeProto) -> None:
        """Translate `node`, unless its results are known or no output depends on their elements.

        Raises InvalidGraph for a shape that is not fixed.
        """
        try:
            if not self._lost.isdisjoint(node.input):
                self._lost.update(node.output)
                return
            self._inference.visit(node)
            if not self._reads.elements.isdisjoint(set(node.output) - self._inference.known.keys()):
                self._translate(node)
        except NotCovered as reason:
            self._lose(node, f"{node.op_type} ({reason})")
        except ShardplanError as error:
            raise error.at(f"node {_name(node)!r} ({node.op_type})") from error

    def value(self, name: str) -> DocumentValue:
        """Return the document's value for a name: the result of a node, an input or a constant."""
        if name not in self.values:
            known = self._inference.known.get(name)
            self.values[name] = self._input(name) if known is None else self._constant(name, known)
        return self.values[name]

    def is_lost(self, name: str) -> bool:
        """Return whether a value depends on an operator that cannot be expressed."""
        return name in self._lost

    def _lose(self, node: NodeProto, operator: str) -> None:
        self.builder.uncovered.refused[operator].append(_name(node))
        self._lost.update(node.output)

    def _translate(self, node: NodeProto) -> None:
        other = find_contrib_op(node.domain, node.op_type)
        if other is None and node.domain not in STANDARD:
            raise NotCovered(f"of {node.domain}, which the standard does not know")
        with self.builder.within(_scope(node), call=next(filter(None, node.output))):
            call = self._call(node)
            row = OPERATORS.get(node.op_type) if other is None else other.row
            if row is None:
                self.values |= self._emit_replicated(call, node)
                return
            start, values = len(self.builder.nodes), dict(self.values)
            try:
                results = row(call)
                listed = [results] if isinstance(results, DocumentValue) else results
                self.values |= zip(node.output, listed, strict=False)
            except NotCovered as reason:
                if other is not None or isinstance(reason, NotExpressible):
                    raise
                del self.builder.nodes[start:]
                self.values = values
                self.values |= self._emit_replicated(call, node, f" ({reason})")

    def _emit_replicated(
        self, call: OnnxNodeCall, node: NodeProto, reason: str = ""
    ) -> Iterator[tuple[str, DocumentValue]]:
        """Emit a node under the operator's own name, for the results that are not left out."""
        self.builder.uncovered.replicated[node.op_type + reason].append(_name(node))
        call.demand("a first result left out", bool(node.output[0]))
        operands = [operand.value() for operand in call.operands if operand is not None]
        results = self.builder.emit_all(f"onnx.{node.op_type}", operands, call.results, attrs={}, node=call.id)
        return zip(filter(None, node.output), results, strict=True)

    def _call(self, node: NodeProto) -> OnnxNodeCall:
        """Return a node as its row sees it. Raises InvalidGraph for an operand that nothing defines before it."""
        for name in filter(None, node.input):
            if name not in self._inference.types:
                wanted = "an input, an initializer or a result of an earlier node"
                raise InvalidGraph("use of an undefined value", got=name, wanted=wanted)
        results = tuple(self._type(name) for name in filter(None, node.output))
        operands = tuple(self._operand(name) if name else None for name in node.input)
        read = tuple(name in self._reads.elements for name in node.output)
        attributes = {entry.name: _to_python(helper.get_attribute_value(entry)) for entry in node.attribute}
        first, gap = next(filter(None, node.output)), not all(node.output)
        return OnnxNodeCall(first, results, self.builder, self._version, operands, attributes, read, gap)

    def _operand(self, name: str) -> OnnxOperand:
        return OnnxOperand(self._inference.known.get(name), partial(self._type, name), partial(self.value, name))

    def _type(self, name: str) -> TensorType:
        """Return a value's type. Raises InvalidGraph for a dim that is not fixed, NotCovered for a non-tensor."""
        kind = self._inference.types.get(name)
        if kind is None or not kind.HasField("tensor_type"):
            raise NotCovered(f"{name} is no tensor")
        return tensor_type(kind, name)

    def _input(self, name: str) -> DocumentValue:
        if name not in self._kinds:
            raise InvalidGraph("use of an undefined value", got=name, wanted="a name that the model defines")
        return self._add_input(name, self._kinds[name])

    def _constant(self, name: str, known: KnownArray) -> DocumentValue:
        """Emit known elements as `full` if they are equal, as `arange` if evenly spaced along one dim.

        Any other table becomes an input, since the document cannot hold its elements.
        """
        kind, first = self._type(name), known.reshape(-1)[:1]
        if (known == first).all():
            return self._emit_constant(name, "full", kind, value=clamp_infinity(first.item(), kind.dtype))
        if known.dtype.kind in "iu" and known.size in known.shape:
            steps = np.diff(known.reshape(-1))
            if (steps == steps[0]).all():
                dim = known.shape.index(known.size)
                return self._emit_constant(name, "arange", kind, start=first.item(), step=steps[0].item(), dim=dim)
        return self._add_input(name, self._kinds.get(name, "constant"))

    def _emit_constant(self, name: str, op: str, kind: TensorType, **attrs: Number) -> DocumentValue:
        with self.builder.within(""):
            return self.builder.emit_all(op, [], [kind], attrs=attrs, node=name)[0]

    def _add_input(self, name: str, kind: str) -> DocumentValue:
        type_ = self._type(name)
        kind = "constant" if kind == "parameter" and not is_float(type_.dtype) else kind
        return self.builder.add_input(name, kind, type_)


def tensor_type(kind: TypeProto, name: str) -> TensorType:
    """Return a tensor's type. Raises InvalidGraph for a dim that is not fixed, NotCovered for an unknown dtype."""
    shape, dtype = require_fixed_shape(kind), FROM_ONNX.get(TensorProto.DataType.Name(kind.tensor_type.elem_type))
    if shape is None:
        dims = [dim.dim_value or dim.dim_param or "?" for dim in kind.tensor_type.shape.dim]
        raise InvalidGraph(
            "shape depends on data", where=name, got=dims, wanted="sizes that follow from the inputs' sizes"
        )
    if dtype is None:
        raise NotCovered(f"dtype {TensorProto.DataType.Name(kind.tensor_type.elem_type)}")
    return TensorType(shape, dtype)


def _to_python(attribute: Any) -> Any:
    """Return an attribute with text decoded, tensors as arrays and sequences as lists."""
    if isinstance(attribute, bytes):
        return attribute.decode(errors="replace")
    if isinstance(attribute, TensorProto):
        return numpy_helper.to_array(attribute)
    return list(attribute) if isinstance(attribute, Sequence) else attribute


def _name(node: NodeProto) -> str:
    return node.name or next(filter(None, node.output), "")


def _scope(node: NodeProto) -> str:
    """Return the module path of a node: from PyTorch's metadata, else the folders of the node's name."""
    noted = {entry.key: entry.value for entry in node.metadata_props}.get(SCOPES)
    if noted is None:
        return ".".join(node.name.strip("/").split("/")[:-1])
    try:
        return str(ast.literal_eval(noted)[-2])
    except (ValueError, SyntaxError, IndexError, TypeError, MemoryError, RecursionError):
        return ""
