"""Types of values, and values known before the model runs: shape arithmetic and single numbers.

For each node in order, the standard's inference gives the types of the results, using the values known so far (such as
the target of a Reshape); then its reference implementation computes the results that sizes depend on. The two alternate
at every node because types depend on values and values on types: a Range may have a sum of dims as its length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, checker, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import InferenceError, infer_node_outputs

from planner.errors import InvalidGraph
from planner.frontends.onnx.contrib_ops import find_contrib_op
from planner.frontends.onnx.liveness import OperandUses
from planner.frontends.onnx.loader import find_schema
from planner.frontends.onnx.node_call import KnownArray

MAX_FOLDED = 1 << 16
"""The most elements of a value that is computed at import."""


class ShapeInference:
    """The types of a model's values so far, and the elements of the values that are known."""

    def __init__(
        self, model: ModelProto, inputs: Mapping[str, TypeProto], reads: OperandUses, folder: Path | None
    ) -> None:
        self.types: dict[str, TypeProto] = dict(inputs)
        self.known: dict[str, KnownArray] = {}
        self._model, self._reads, self._folder = model, reads, folder
        self._context = checker.C.CheckerContext()
        self._context.ir_version = model.ir_version
        self._context.opset_imports = {entry.domain: entry.version for entry in model.opset_import}
        for tensor in model.graph.initializer:
            self.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            self._read(tensor)

    def _read(self, tensor: TensorProto) -> None:
        """Keep the elements of a weight if sizes may depend on them, or if the model itself holds a single number."""
        count = math.prod(tensor.dims)
        if uses_external_data(tensor):
            if tensor.name in self._reads.sizes and count <= MAX_FOLDED:
                self.known[tensor.name] = self._read_external(tensor)
        elif count == 1 or (tensor.name in self._reads.sizes and count <= MAX_FOLDED):
            self.known[tensor.name] = _elements(tensor)

    def _read_external(self, tensor: TensorProto) -> KnownArray:
        """Return the elements of a weight in external data. Raises InvalidGraph if the file is missing."""
        whole = TensorProto()
        whole.CopyFrom(tensor)
        try:
            load_external_data_for_tensor(whole, str(self._folder or "."))
        except (OSError, ValueError, checker.ValidationError) as error:
            got = str(error).strip().partition("\n")[0]
            wanted = "the model's external data beside it: a shape depends on this value"
            raise InvalidGraph("external data", where=tensor.name, got=got, wanted=wanted) from None
        return _elements(whole)

    def visit(self, node: NodeProto) -> None:
        """Infer the results of `node`, whose operands were visited before. Raises InvalidGraph for a contradiction."""
        self._infer(node)
        if node.op_type in ("Shape", "Size"):
            self._measure(node)
        elif node.op_type == "Constant" or self._is_wanted(node):
            self._compute(node)

    def _infer(self, node: NodeProto) -> None:
        schema = find_schema(self._model, node)
        given = [name for name in node.input if name in self.types]
        if schema is None:
            self._infer_contrib(node)
        if schema is None or len(given) < sum(map(bool, node.input)):
            return
        small = {name: self.known[name] for name in given if name in self.known}
        data = {name: numpy_helper.from_array(np.asarray(array, order="C"), name) for name, array in small.items()}
        types = {name: self.types[name] for name in given}
        versions, ir = list(self._model.opset_import), self._model.ir_version
        _check_batch(node, types.values())
        try:
            checker.check_node(node, self._context)
            self.types |= infer_node_outputs(schema, node, types, data, opset_imports=versions, ir_version=ir)
        except (InferenceError, checker.ValidationError) as error:
            raise InvalidGraph(
                "operands do not fit", got=_format_failure(error), wanted=f"those of {node.op_type}"
            ) from None

    def _infer_contrib(self, node: NodeProto) -> None:
        contributed, first = find_contrib_op(node.domain, node.op_type), self.types.get(next(iter(node.input), ""))
        if contributed is None or first is None:
            return
        shapes = [require_fixed_shape(self.types.get(name)) for name in node.input]
        try:
            results = contributed.shapes(
                shapes, {each.name: helper.get_attribute_value(each) for each in node.attribute}
            )
        except (ArithmeticError, TypeError, ValueError) as error:
            raise InvalidGraph(
                "operands do not fit", got=_format_failure(error), wanted=f"those of {node.op_type}"
            ) from None
        kind = first.tensor_type.elem_type
        for name, shape in zip(node.output, results, strict=False):
            if name:
                self.types[name] = helper.make_tensor_type_proto(kind, shape)

    def _measure(self, node: NodeProto) -> None:
        shape = require_fixed_shape(self.types.get(node.input[0]))
        if shape is None:
            return
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        part = shape[attributes.get("start", 0) : attributes.get("end")]
        self._record_array(
            node.output[0], np.array(math.prod(shape) if node.op_type == "Size" else part, dtype=np.int64)
        )

    def _is_wanted(self, node: NodeProto) -> bool:
        """Return whether all operands are known and the results determine sizes or are single numbers."""
        if not all(name in self.known for name in node.input if name):
            return False
        counts = [
            math.prod(shape) for name in node.output if (shape := require_fixed_shape(self.types.get(name))) is not None
        ]
        sizes = not self._reads.sizes.isdisjoint(node.output)
        return all(count <= MAX_FOLDED for count in counts) if sizes else counts == [1] * len(node.output)

    def _compute(self, node: NodeProto) -> None:
        """Compute the results of a node. Raises InvalidGraph if the reference implementation fails."""
        given = {name: self.known[name] for name in node.input if name}
        anything = TypeProto()
        graph = helper.make_graph(
            [node],
            "known",
            [helper.make_value_info(name, self.types[name]) for name in given],
            [helper.make_value_info(name, anything) for name in node.output if name],
        )
        alone = helper.make_model(graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version)
        try:
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(alone).run(None, given)
        except Exception as failure:  # numpy computes on data of the file and may raise anything
            raise InvalidGraph("shape arithmetic fails", got=_format_failure(failure)) from failure
        for name, array in zip(filter(None, node.output), results, strict=True):
            self._record_array(name, np.asarray(array))

    def _record_array(self, name: str, array: KnownArray) -> None:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.types[name] = helper.make_tensor_type_proto(kind, array.shape)
        self.known[name] = array


def _check_batch(node: NodeProto, operands: Iterable[TypeProto]) -> None:
    """Check `batch_dims`: for more of them than dims, the standard's inference reads past the end of a shape."""
    least = min((len(kind.tensor_type.shape.dim) for kind in operands), default=0)
    for attribute in node.attribute:
        if attribute.name == "batch_dims" and not 0 <= attribute.i < least:
            raise InvalidGraph("batch_dims", got=attribute.i, wanted=f"0 to {least - 1}")


def _elements(tensor: TensorProto) -> KnownArray:
    """Return the elements of a tensor. Raises InvalidGraph if the data does not fit the shape."""
    try:
        known: KnownArray = numpy_helper.to_array(tensor)
    except (TypeError, ValueError) as failure:
        raise InvalidGraph(
            "damaged tensor", where=tensor.name, got=_format_failure(failure), wanted="its elements"
        ) from None
    return known


def require_fixed_shape(kind: TypeProto | None) -> tuple[int, ...] | None:
    """Return the shape of a tensor; None if any of its sizes is unknown."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None


def _format_failure(failure: Exception) -> str:
    """Return the type and the first line of an error."""
    return f"{type(failure).__name__}: {str(failure).strip()}".partition("\n")[0]
