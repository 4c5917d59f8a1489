"""Requests for plans: their schema, and the planner's values they describe.

The server parses a request to report faults with a JSON pointer; the child process parses it again to plan it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any

from pydantic import Field

from api.options import StagedPlanOptions
from planner.choose import hardware
from planner.choose.cost import CostModel
from planner.choose.hardware import Hardware
from planner.documents.graphs import load_graph, load_mesh
from planner.documents.pipelines import identify_pipeline
from planner.documents.plans import dump_identity
from planner.documents.schemas import GraphDocument, MeshDocument, PinsDocument
from planner.documents.strict_model import Id, Name, StrictModel
from planner.errors import InvalidDocument, ShardplanError
from planner.ir.graph import Graph, check_sizes
from planner.ir.mesh import Mesh
from planner.judge.standard_layouts import check_layout
from planner.pipeline_stages.plan_pipeline import check_pipeline_request
from planner.pipeline_stages.request import PipelineRequest
from planner.planning.plan_types import Request
from planner.rewrite.accumulate import accumulate_gradients

BuiltInHardware = Annotated[Id, Field(description="The name of a built-in hardware profile.")]
MeshInput = Annotated[MeshDocument | Name, Field(description="A mesh document, or dp=2,tp=4, or 2x4.")]


class PlanRequest(StrictModel):
    """A graph to plan on a mesh."""

    graph: GraphDocument
    mesh: MeshInput
    hardware: Annotated[
        Id | None, Field(description="A built-in profile; else the mesh's device, else the default profile.")
    ] = None
    request: StagedPlanOptions = Field(default=StagedPlanOptions())
    pins: Annotated[PinsDocument | None, Field(description="Shardings that the plan must meet.")] = None


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The planner's values of a request."""

    graph: Graph
    mesh: Mesh
    hardware: Hardware
    request: Request
    pipeline: PipelineRequest | None = None

    @property
    def model(self) -> CostModel:
        return CostModel(self.mesh, self.hardware)

    @property
    def plan_id(self) -> str:
        """The id of the plan."""
        if self.pipeline is not None:
            return identify_pipeline(self.graph, self.model, self.request, asked=self.pipeline)
        identity: str = dump_identity(self.graph, self.model, self.request)["id"]
        return identity


def build_plan_inputs(document: PlanRequest) -> PlanInputs:
    """Return the values of a request. Raises ShardplanError whose `pointer` leads to the fault."""
    with at_pointer("/request"):
        request, stages = document.request.to_request(), document.request.to_pipeline()
    mesh = build_mesh(document.mesh, "/mesh")
    with at_pointer("/hardware" if document.hardware else "/mesh/device"):
        profile = hardware.load_profile(document.hardware or mesh.device or hardware.DEFAULT_PROFILE)
    mesh = replace(mesh, device=profile.name)
    with at_pointer("/mesh"):
        profile.tier_spans(mesh)
    try:
        graph = load_graph(document.graph, mesh, document.pins.annotations if document.pins else ())
        check_sizes(graph)
    except ShardplanError as error:
        error.pointer = _find_pointer(error, document)
        raise
    with at_pointer("/request"):
        step = accumulate_gradients(graph, request.microbatches, request.global_batch)
        if request.layout is not None:
            check_layout(graph, mesh, request.layout)
        if stages is not None:
            check_pipeline_request(request)
            stages.check_schedule(step.microbatches)
            stages.list_meshes(graph, mesh, request.layout)
    return PlanInputs(graph, mesh, profile, request, stages)


def build_mesh(mesh_input: MeshDocument | str, pointer: str) -> Mesh:
    """Return a mesh with known sizes. Raises InvalidMesh."""
    with at_pointer(pointer):
        mesh = Mesh.parse(mesh_input) if isinstance(mesh_input, str) else load_mesh(mesh_input)
        mesh.shape  # noqa: B018 - raises where one is unknown
    return mesh


@contextmanager
def at_pointer(pointer: str) -> Iterator[None]:
    """Prefix the pointer of errors raised inside the block."""
    try:
        yield
    except ShardplanError as error:
        error.pointer = pointer + (error.pointer or "")
        raise


def _find_pointer(error: ShardplanError, document: PlanRequest) -> str:
    """Return the pointer to the node, input or annotation that an error of the graph names."""
    graph, pins = document.graph, document.pins.annotations if document.pins else []
    places = [(f"node {node.id!r}", f"/graph/nodes/{index}") for index, node in enumerate(graph.nodes)]
    places += [(f"input {entry.id!r}", f"/graph/inputs/{index}") for index, entry in enumerate(graph.inputs)]
    for index, annotation in enumerate([*graph.annotations, *pins]):
        in_graph = index < len(graph.annotations)
        place = f"/graph/annotations/{index}" if in_graph else f"/pins/annotations/{index - len(graph.annotations)}"
        places.append((f"annotation of {annotation.value!r}", place))
    return next((place for name, place in places if error.where.startswith(name)), "/graph")


def pack_json(document: Any) -> bytes:
    """Return a JSON value as compressed text, as it is stored and sent to child processes."""
    return compress_json(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())


def compress_json(text: bytes) -> bytes:
    """Compress text that is valid JSON already."""
    return gzip.compress(text, 1, mtime=0)


def unpack_json(raw: bytes) -> Any:
    """Return the value that `pack_json` packed. Only the service's own data is read, so there are no limits."""
    return json.loads(gzip.decompress(raw))


def check_nesting(document: Any, max_depth: int) -> None:
    """Raise InvalidDocument where objects and arrays are nested deeper than `most`."""
    level = [document]  # level by level: recursion would overflow on the documents that this refuses
    for _ in range(max_depth + 1):
        inner = [value for value in level if type(value) is dict or type(value) is list]
        if not inner:
            return
        level = [*chain.from_iterable(value.values() if type(value) is dict else value for value in inner)]
    raise InvalidDocument("nested too deeply", where="body", wanted=f"at most {max_depth} levels", pointer="")
