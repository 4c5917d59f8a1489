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

    from planner.frontends.onnx.document import Imported
    from planner.model.sharding import Shape

__all__ = ["graph_document", "import_again", "import_bytes", "import_onnx", "not_installed"]


def import_onnx(path: Path, dims: Mapping[str, int] | None = None) -> dict[str, Any]:
    """The graph document of the model in an .onnx file; `dims` gives the sizes of its symbolic dims, by name.

    External data is not read, so it may be missing, unless the shape of something depends on it.

    Raises InvalidDocument for a file that is no model, InvalidGraph for a size that is not fixed or control flow,
    UnsupportedOp for operators outside the table, InvalidRequest for a size of a dim that the model does not have.
    """
    try:
        from planner.frontends.onnx import reading

        model = reading.read_model(path)
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    return graph_document(model, path.stem, dims, path.parent)


def import_bytes(data: bytes, name: str, dims: Mapping[str, int] | None = None) -> dict[str, Any]:
    """As import_onnx, of the bytes of a file, whose external data is nowhere."""
    try:
        from planner.frontends.onnx import reading

        model = reading.model_of(data, name)
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    return graph_document(model, name, dims)


def graph_document(
    model: ModelProto, name: str, dims: Mapping[str, int] | None = None, folder: Path | None = None
) -> dict[str, Any]:
    """The graph document of a model in memory; `folder` is where its external data would lie.

    Raises as `import_onnx` does.
    """
    from planner.frontends.onnx import document

    return document.imported(model, name, dict(dims or {}), folder).document


def import_again(path: Path, shapes: Mapping[str, Shape]) -> tuple[ModelProto, Imported]:
    """The model in an .onnx file, and what it is imported as where its inputs have these shapes.

    Raises as `import_onnx` does.
    """
    try:
        from planner.frontends.onnx import document, reading, sizes

        model = reading.read_model(path)
        dims = sizes.implied(model.graph.input, shapes)
        return model, document.imported(reading.read_model(path), path.stem, dims, path.parent)
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing


def not_installed(missing: ModuleNotFoundError) -> Exception:
    """What is raised where the extra is missing."""
    if missing.name != "onnx":
        return missing
    what = f"{missing.name} is not installed"
    return InvalidRequest(what, where="import onnx", wanted="pip install shardplan[onnx]")
