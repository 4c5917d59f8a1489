"""A file -> a model. External data is not loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto
from onnx.defs import OpSchema, SchemaError
from onnx.inliner import inline_local_functions, inline_selected_functions

from planner.errors import InvalidDocument, InvalidGraph
from planner.frontends.onnx.op_table import OPERATORS

WANTED = "a complete .onnx file"
STANDARD = ("", "ai.onnx")
MAX_NESTING = 4
"""How deep functions of the standard call one another."""


def read_model(path: Path) -> ModelProto:
    """Return the model in a file, without its external data. Raises InvalidDocument."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidDocument("cannot be read", where=str(path), got=error.strerror or str(error)) from None
    return parse_model(data, str(path))


def parse_model(data: bytes, where: str) -> ModelProto:
    """Return the model in the bytes of a file. Raises InvalidDocument."""
    try:
        model = onnx.load_model_from_string(data)
    except Exception as damage:  # protobuf's own errors; naming them would need its package
        raise InvalidDocument(
            "not an ONNX model", where=where, got="truncated or other data", wanted=WANTED
        ) from damage
    if not model.opset_import or not model.graph.node:
        raise InvalidDocument("not an ONNX model", where=where, got="no operators", wanted=WANTED)
    return model


def inline_functions(model: ModelProto) -> ModelProto:
    """Return the model with functions inlined: its own, and those of the standard that have no row.

    Raises InvalidGraph for control flow, naming the nodes, and for functions that cannot be inlined.
    """
    _check_no_control_flow(model.graph.node)
    try:
        model = inline_local_functions(model) if model.functions else model
        for _ in range(MAX_NESTING):
            model = _inline_once(model)
    except (RuntimeError, ValueError) as failure:
        got = str(failure).partition("\n")[0]
        raise InvalidGraph(
            "functions cannot be inlined", got=got, wanted="functions that are not recursive, with known types"
        ) from None
    _check_no_control_flow(model.graph.node)
    return model


def _inline_once(model: ModelProto) -> ModelProto:
    """Replace every function of the standard that has no row by its body."""
    nodes = [node for node in model.graph.node if _is_function(model, node)]
    for node in nodes:
        _set_defaults(node, find_schema(model, node))
    kinds = sorted({("", node.op_type) for node in nodes})
    return inline_selected_functions(model, kinds, inline_schema_functions=True) if kinds else model


def _set_defaults(node: NodeProto, schema: OpSchema | None) -> None:
    """Write out the attributes that a node leaves at their defaults, since the function body refers to them."""
    written = {attribute.name for attribute in node.attribute}
    defaults = {name: entry.default_value for name, entry in schema.attributes.items()} if schema else {}
    node.attribute.extend(value for name, value in defaults.items() if value.name and name not in written)


def _check_no_control_flow(nodes: Iterable[NodeProto]) -> None:
    branching = [
        f"{node.op_type} {node.name!r}" for node in nodes if any(a.HasField("g") or a.graphs for a in node.attribute)
    ]
    if branching:
        raise InvalidGraph(
            "control flow", got=", ".join(branching), wanted="operators only: export without If, Loop, Scan"
        )


def _is_function(model: ModelProto, node: NodeProto) -> bool:
    if node.domain not in STANDARD or node.op_type in OPERATORS:
        return False
    schema = find_schema(model, node)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def find_schema(model: ModelProto, node: NodeProto) -> OpSchema | None:
    """Return the standard's schema of the operator in the model's version; None if the standard does not know it."""
    versions = {"" if entry.domain in STANDARD else entry.domain: entry.version for entry in model.opset_import}
    domain = "" if node.domain in STANDARD else node.domain
    try:
        return onnx.defs.get_schema(node.op_type, versions.get(domain, 1), domain)
    except SchemaError:
        return None
