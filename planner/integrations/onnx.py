"""A plan's shardings written onto the ONNX model that its graph came from.

The model is imported again, to map its values to those of the graph and to check that it is the planned model.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from planner.documents.graphs import dump_graph, load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidRequest
from planner.frontends.onnx import missing_package_error, reimport_onnx
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program


def annotated_model(program: Program, path: Path, folder: Path) -> bytes:
    """Return the model of a file with the program's shardings on its nodes, to be written to `folder`.

    Raises InvalidRequest if the model is not the planned one or has external data in another folder, InvalidSharding
    for a sharding that ONNX cannot express, and the errors of importing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownOpWarning)  # the first import has warned already
        model, imported = reimport_onnx(path, {entry.id: entry.type.shape for entry in program.graph.inputs})
    if any(tensor.external_data for tensor in model.graph.initializer) and folder.resolve() != path.parent.resolve():
        got, wanted = str(folder), f"a file in {path.parent}, beside the model's external data"
        raise InvalidRequest("folder of the annotated model", got=got, wanted=wanted)
    graph = load_graph(validate_document(GraphDocument, imported.document, str(path)), program.mesh)
    _check_same_graph(graph, program.graph, program.mesh, where=str(path))
    try:
        from planner.export.onnx import Origin, annotate_model
    except ModuleNotFoundError as missing:
        raise missing_package_error(missing) from missing
    origins = {name: Origin(value.id, value.shape) for name, value in imported.values.items()}
    annotate_model(model, program, origins)
    data: bytes = model.SerializeToString()
    return data


def _check_same_graph(imported: Graph, planned: Graph, mesh: Mesh, *, where: str) -> None:
    """Raise InvalidRequest if two graphs differ in more than pins, of which the planned one may have more."""
    model, plan = (dump_graph(graph, mesh) for graph in (imported, planned))
    for part in ("inputs", "nodes", "outputs"):
        mine, theirs = ([_without_pins(entry) for entry in document[part]] for document in (model, plan))
        if mine != theirs:
            differ = next((entry for entry in mine if entry not in theirs), f"{len(mine)} of them")
            got = f"{part}: {differ['id'] if isinstance(differ, dict) else differ}"
            wanted = f"those of the plan's graph {planned.name!r}"
            raise InvalidRequest("the model is not the one that was planned", where=where, got=got, wanted=wanted)


def _without_pins(entry: Any) -> Any:
    return {key: value for key, value in entry.items() if key != "option"} if isinstance(entry, dict) else entry
