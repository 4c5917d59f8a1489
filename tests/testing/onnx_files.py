"""Small ONNX models, built by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed: pip install shardplan[onnx]")
helper: Any = onnx.helper
FLOAT, INT64, BOOL = 1, 7, 9


def model(
    nodes: list[Any],
    inputs: dict[str, list[Any]],
    outputs: list[str],
    weights: dict[str, Any] | None = None,
    opset: int = 20,
) -> Any:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    """Return a node; names are separated by spaces, `-` omits an operand. Its name is its first result in capitals."""
    read = [name.replace("-", "") for name in inputs.split()]
    return helper.make_node(op, read, outputs.split(), outputs.split()[0].upper(), **attrs)


def numbers(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def layer(batch: int | str = 4) -> Any:
    """Build relu(x w + b), with rows merged and split again by shape arithmetic."""
    nodes = [
        node("Reshape", "x flat", "rows"),
        node("Gemm", "rows w b", "y"),
        node("Shape", "x", "shape", start=0, end=2),
        node("Concat", "shape last", "target", axis=0),
        node("Reshape", "y target", "apart"),
        node("Relu", "apart", "out"),
    ]
    weights = {"flat": numbers(-1, 6), "last": numbers(8), "w": np.ones((6, 8), "f4"), "b": np.ones(8, "f4")}
    return model(nodes, {"x": [batch, 3, 6]}, ["out"], weights)


def external(name: str, shape: list[int], dtype: int = FLOAT) -> Any:
    """Return an initializer whose external file does not exist."""
    tensor = onnx.TensorProto(name=name, dims=shape, data_type=dtype, data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="nowhere.data")
    return tensor


def without_field(proto: Any, *names: str) -> Any:
    """Return the model with these initializers moved to an external file that does not exist."""
    tensors = [external(t.name, list(t.dims), t.data_type) if t.name in names else t for t in proto.graph.initializer]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(tensors)
    return proto
