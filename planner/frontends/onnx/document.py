"""A model as a graph document.

Ids are the names of the model's values. Nodes and inputs that no output depends on are dropped, and so are reshapes
that would keep dims from being split. Float weights are parameters; other weights and tables of numbers are constants;
a weight with a single element becomes that number. An operator without a row, or a variant that its row does not take,
is planned replicated, and a warning names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from planner.errors import ShardplanError, UnsupportedOp
from planner.frontends.graph_builder import DocumentValue, build_document
from planner.frontends.onnx import symbolic_dims
from planner.frontends.onnx.liveness import OperandUses
from planner.frontends.onnx.loader import inline_functions
from planner.frontends.onnx.op_table import OPERATORS
from planner.frontends.onnx.translation import OnnxTranslation
from planner.frontends.simplify_reshapes import simplify_reshapes
from planner.frontends.uncovered_ops import NotCovered
from planner.ir.graph import value_id


@dataclass(frozen=True, slots=True, eq=False)
class ImportedOnnx:
    """A graph document, and the values of the document by their names in the model, with the model's shapes.

    Values that the document does not have (sizes, single numbers) are absent.
    """

    document: dict[str, Any]
    values: Mapping[str, DocumentValue]


def import_model(model: ModelProto, name: str, dims: Mapping[str, int], *, folder: Path | None) -> ImportedOnnx:
    """Return the graph document of `model`, as JSON values.

    Raises UnsupportedOp naming the operators that cannot be expressed and their nodes (its notes list all of them),
    InvalidGraph for control flow or a shape that is not fixed, InvalidRequest for `dims` that do not fit. Warns of
    operators that are planned replicated.
    """
    try:
        model = inline_functions(model)
        translation = _translate_model(model, dims, folder)
        live = [output.name for output in model.graph.output if not translation.is_lost(output.name)]
        outputs = [translation.value(name).id for name in live]
    except NotCovered as reason:
        raise UnsupportedOp("output", where=name, got=str(reason), wanted="a tensor of numbers") from None
    except ShardplanError as error:
        raise error.at(name) from error
    translation.builder.uncovered.report(name, OPERATORS, framework="onnx")
    shapes = {entry["id"]: tuple(entry["shape"]) for entry in translation.inputs}
    nodes, outputs = simplify_reshapes(translation.builder.nodes, outputs, shapes)
    producer = "onnx", onnx.__version__
    document = build_document(name, producer, inputs=translation.inputs, nodes=nodes, outputs=outputs)
    return ImportedOnnx(document, _collect_values(translation, document))


def _collect_values(translation: OnnxTranslation, document: Mapping[str, Any]) -> dict[str, DocumentValue]:
    """Return the document's value for every name of the model; a removed reshape stands for its operand."""
    present = {entry["id"] for entry in document["inputs"]}
    present |= {value_id(node["id"], k) for node in document["nodes"] for k in range(len(node["outputs"]))}
    read = {node["id"]: node["inputs"][0] for node in translation.builder.nodes if node["op"] == "reshape"}
    values = {}
    for name, value in translation.values.items():
        identifier = value.id
        while identifier not in present:
            identifier = read[identifier]
        if name:
            values[name] = DocumentValue(identifier, value.type)
    return values


def _translate_model(model: ModelProto, dims: Mapping[str, int], folder: Path | None) -> OnnxTranslation:
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = symbolic_dims.bind_dims((entry for entry in model.graph.input if entry.name not in weights), dims)
    translation = OnnxTranslation(model, inputs, OperandUses.of(model.graph), folder)
    for node in model.graph.node:
        translation.add(node)
    return translation
