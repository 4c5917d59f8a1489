"""Graphs from ONNX: inference models with fixed sizes; no weight is read.

reading      a file -> a model: without its external data, its own functions opened, control flow refused
sizes        symbolic dims -> numbers
operands     which operands say sizes, and which nodes the outputs depend on
inference    types of values, and the values that are known before the model runs
translation  node by node: inputs, calls, and what could not be translated
document     a model -> a graph document
operators    the table: ONNX operator -> row; rows stand in images, lookups, pointwise, products and views
contributed  the same for operators of ONNX Runtime
call         one node, as a row sees it
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
    """The graph document of the model in an .onnx file; `dims` gives the sizes of its symbolic dims, by name.

    External data is not read, so it may be missing, unless the shape of something depends on it.

    Raises InvalidDocument for a file that is no model, InvalidGraph for a size that is not fixed or control flow,
    UnsupportedOp for operators outside the table, InvalidRequest for a size of a dim that the model does not have.
    """
    try:
        from planner.frontends.onnx import loader

        model = loader.read_model(path)
    except ModuleNotFoundError as missing:
        raise missing_package_error(missing) from missing
    return build_graph_document(model, path.stem, dims, folder=path.parent)


def import_bytes(data: bytes, name: str, dims: Mapping[str, int] | None = None) -> dict[str, Any]:
    """As import_onnx, of the bytes of a file, whose external data is nowhere."""
    try:
        from planner.frontends.onnx import loader

        model = loader.parse_model(data, name)
    except ModuleNotFoundError as missing:
        raise missing_package_error(missing) from missing
    return build_graph_document(model, name, dims)


def build_graph_document(
    model: ModelProto, name: str, dims: Mapping[str, int] | None = None, *, folder: Path | None = None
) -> dict[str, Any]:
    """The graph document of a model in memory; `folder` is where its external data would lie.

    Raises as `import_onnx` does.
    """
    from planner.frontends.onnx import document

    return document.import_model(model, name, dict(dims or {}), folder=folder).document


def reimport_onnx(path: Path, shapes: Mapping[str, Shape]) -> tuple[ModelProto, ImportedOnnx]:
    """The model in an .onnx file, and what it is imported as where its inputs have these shapes.

    Raises as `import_onnx` does.
    """
    try:
        from planner.frontends.onnx import document, loader, symbolic_dims

        model = loader.read_model(path)
        dims = symbolic_dims.infer_dims(model.graph.input, shapes)
        return model, document.import_model(loader.read_model(path), path.stem, dims, folder=path.parent)
    except ModuleNotFoundError as missing:
        raise missing_package_error(missing) from missing


def missing_package_error(missing: ModuleNotFoundError) -> Exception:
    """What is raised where the extra is missing."""
    if missing.name != "onnx":
        return missing
    what = f"{missing.name} is not installed"
    return InvalidRequest(what, where="import onnx", wanted="pip install shardplan[onnx]")
