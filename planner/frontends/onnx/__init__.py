"""Graphs from ONNX: inference models with fixed sizes; no weight is read.

loader           a file -> a model, without external data; functions are inlined, control flow is refused
symbolic_dims    symbolic dims -> numbers
liveness         which operands only determine sizes, and which nodes the outputs depend on
shape_inference  types of values, and values known before the model runs
translation      the walk, node by node
document         a model -> a graph document
op_table         ONNX operator -> row; rows are in conv_pool, gather_scatter, matmul_attention, pointwise and views
contrib_ops      the same for operators of ONNX Runtime
node_call        one node, as a row sees it
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InvalidRequest

if TYPE_CHECKING:
    from onnx import ModelProto

    from planner.frontends.onnx.document import ImportedOnnx
    from planner.ir.sharding import Shape

__all__ = ["build_graph_document", "import_bytes", "import_onnx", "missing_package_error", "reimport_onnx"]


def import_onnx(path: Path, dims: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the graph document of the model in an .onnx file; `dims` gives the sizes of symbolic dims by name.

    External data is read only if a shape depends on it; otherwise it may be missing.

    Raises InvalidDocument for a file that is no model, InvalidGraph for control flow or a size that is not fixed,
    UnsupportedOp for operators that cannot be expressed, InvalidRequest for a dim that the model does not have.
    """
    try:
        from planner.frontends.onnx import loader

        model = loader.read_model(path)
    except ModuleNotFoundError as missing:
        raise missing_package_error(missing) from missing
    return build_graph_document(model, path.stem, dims, folder=path.parent)


def import_bytes(data: bytes, name: str, dims: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the graph document of the bytes of an .onnx file without external data. Raises as `import_onnx` does."""
    try:
        from planner.frontends.onnx import loader

        model = loader.parse_model(data, name)
    except ModuleNotFoundError as missing:
        raise missing_package_error(missing) from missing
    return build_graph_document(model, name, dims)


def build_graph_document(
    model: ModelProto, name: str, dims: Mapping[str, int] | None = None, *, folder: Path | None = None
) -> dict[str, Any]:
    """Return the graph document of a model in memory; `folder` is the folder of its external data.

    Raises as `import_onnx` does.
    """
    from planner.frontends.onnx import document

    return document.import_model(model, name, dict(dims or {}), folder=folder).document


def reimport_onnx(path: Path, shapes: Mapping[str, Shape]) -> tuple[ModelProto, ImportedOnnx]:
    """Return the model in an .onnx file, and its import with inputs of these shapes. Raises as `import_onnx` does."""
    try:
        from planner.frontends.onnx import document, loader, symbolic_dims

        model = loader.read_model(path)
        dims = symbolic_dims.infer_dims(model.graph.input, shapes)
        return model, document.import_model(loader.read_model(path), path.stem, dims, folder=path.parent)
    except ModuleNotFoundError as missing:
        raise missing_package_error(missing) from missing


def missing_package_error(missing: ModuleNotFoundError) -> Exception:
    """Return the error to raise for a missing module: one that names the extra `onnx`, if that is missing."""
    if missing.name != "onnx":
        return missing
    what = f"{missing.name} is not installed"
    return InvalidRequest(what, where="import onnx", wanted="pip install shardplan[onnx]")
