"""Converters from other tools' model formats to graph documents, by content type.

A conversion runs the tool's own parser on untrusted input, so it happens in a child process only.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from planner.errors import InvalidDocument
from planner.frontends import onnx, stablehlo, torch
from planner.frontends.uncovered_ops import UnknownOpWarning

DimSizes = Mapping[str, int]


def _import_torch(data: bytes, name: str, _dims: DimSizes) -> dict[str, Any]:
    return torch.import_serialized(data, name)


def _import_stablehlo(data: bytes, name: str, _dims: DimSizes) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidDocument("not text", where=name, got=str(error), wanted="UTF-8") from None
    return stablehlo.import_stablehlo(text, name)


def _import_onnx(data: bytes, name: str, dims: DimSizes) -> dict[str, Any]:
    return onnx.import_bytes(data, name, dims)


IMPORTERS: Mapping[str, Callable[[bytes, str, DimSizes], dict[str, Any]]] = {
    "application/x-torch-export+json": _import_torch,
    "text/x-stablehlo": _import_stablehlo,
    "application/x-onnx": _import_onnx,
}
"""By content type: the JSON of torch.export.save, the text of jax.jit(f).lower(...), an .onnx file."""


def conversion_task(form: str, data: bytes, name: str, *, dims: DimSizes) -> dict[str, Any]:
    """Return the task that asks a child process to convert a model."""
    return {"form": form, "name": name, "dims": dict(dims), "data": base64.b64encode(data).decode()}


def convert_model(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the graph document of a conversion task; unknown ops are planned replicated. Raises ShardplanError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownOpWarning)
        return IMPORTERS[task["form"]](base64.b64decode(task["data"]), task["name"], task["dims"])
