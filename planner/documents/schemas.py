"""The shape of graph, mesh and plan documents. Types are exact, unknown keys refused, everything frozen."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from planner.documents.reading import collector_paused
from planner.errors import InvalidDocument

MAX_NODES = 30_000
MAX_FAULTS = 100_000


def _whole(value: object) -> object:
    """Python takes 1.0 and True for 1."""
    if isinstance(value, bool | float):
        raise ValueError("1")
    return value


Id = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Name = Annotated[str, Field(max_length=1024, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Dim = Annotated[int, Field(ge=1, le=1 << 40)]
Dtype = Literal["f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool"]
Size = Annotated[int, Field(ge=0)]
Version = Annotated[Literal[1], BeforeValidator(_whole)]
_JSON_NAMES = {dict: "an object", list: "an array"}
Axis = Annotated[int | Id, Field(description="a mesh axis: its name, or its position")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


Shape = Annotated[list[Dim], Field(max_length=16, fail_fast=True)]
AxisList = Annotated[list[Axis], Field(max_length=16, fail_fast=True)]
Counts = Annotated[list[Annotated[int, Field(ge=-(1 << 40), le=1 << 40)]], Field(max_length=4096, fail_fast=True)]
AxisLists = Annotated[list[AxisList], Field(max_length=64, fail_fast=True)]


class PartialDocument(_Strict):
    """Axes over which terms must be reduced."""

    reduction: Literal["sum", "max", "min", "product", "average", "bitwise_and", "bitwise_or", "bitwise_xor"] = "sum"
    axes: AxisList


class ShardingDocument(_Strict):
    """Mesh axes per tensor dim, major first; a shorter list leaves the other dims whole.

    `halo_sizes`: before and after, for every split dim. `sharded_dims_offsets`: for every split dim the cuts, one
    more than it has blocks, one dim after the other.
    """

    split_axes: AxisLists
    partial: PartialDocument | None = None
    halo_sizes: Counts = []
    sharded_dims_offsets: Counts = []


class TypeDocument(_Strict):
    """Shape and element type of a value."""

    shape: Shape
    dtype: Dtype


class InputDocument(_Strict):
    """A value that comes from outside."""

    id: Id
    kind: Literal["parameter", "buffer", "input", "constant", "optimizer_state"]
    name: Name
    shape: Shape
    dtype: Dtype


class NodeDocument(_Strict):
    """An op. Its first result is named by its id, result k > 0 `id:k`."""

    id: Id
    op: Id
    inputs: Annotated[list[Id], Field(max_length=4096, fail_fast=True)]
    attrs: dict[Name, JsonValue] = {}
    outputs: Annotated[list[TypeDocument], Field(min_length=1, max_length=1024, fail_fast=True)]
    scope: Name = ""
    phase: Literal["forward", "backward", "update"] = "forward"
    rule: Annotated[str, Field(max_length=4096)] | None = None


class AnnotationDocument(_Strict):
    """A sharding asked for: of the value's definition, or of its use by the node `user`."""

    value: Id
    sharding: ShardingDocument
    required: bool = True
    user: Id | None = None


class GraphDocument(_Strict):
    """A computation graph."""

    format: Literal["shardplan.graph"]
    version: Version
    name: Name
    producer: dict[Name, Name] = {}
    inputs: Annotated[list[InputDocument], Field(max_length=MAX_NODES, fail_fast=True)]
    nodes: Annotated[list[NodeDocument], Field(max_length=MAX_NODES, fail_fast=True)]
    outputs: Annotated[list[Id], Field(min_length=1, max_length=MAX_NODES, fail_fast=True)]
    annotations: Annotated[list[AnnotationDocument], Field(max_length=MAX_NODES, fail_fast=True)] = []


class PinsDocument(_Strict):
    """Annotations given beside a graph."""

    format: Literal["shardplan.pins"]
    version: Version
    annotations: Annotated[list[AnnotationDocument], Field(max_length=MAX_NODES, fail_fast=True)]


class MeshAxisDocument(_Strict):
    """One axis; `?` is an unknown size."""

    name: Id
    size: Annotated[int, Field(ge=1, le=1 << 20)] | Literal["?"]
    link: Id | None = None


class MeshDocument(_Strict):
    """A device mesh."""

    format: Literal["shardplan.mesh"]
    version: Version
    axes: Annotated[list[MeshAxisDocument], Field(min_length=1, max_length=8)]
    device: Id | None = None


class PlannedGraphDocument(_Strict):
    """The planned graph: its digest, and the document itself, so that a plan can be run alone."""

    digest: str
    name: Name
    document: GraphDocument


class LinkDocument(_Strict):
    """The link of a mesh axis: s a step, B/s a device and direction."""

    latency_s: float
    bandwidth: float


class HardwareDocument(_Strict):
    """The numbers of the hardware profile that the plan was priced with, a device."""

    name: Name
    peak_flops: dict[Name, float]
    compute_efficiency: float
    memory_bandwidth: float
    memory_efficiency: float
    memory_bytes: Size
    launch_s: float
    collective_launch_s: float
    axis_links: list[LinkDocument]


class RequestDocument(_Strict):
    """What was asked for."""

    objective: Literal["time"]
    memory_limit_bytes: Size
    gap: float
    time_limit_s: float | None
    deterministic: bool
    seed: int


class SolverDocument(_Strict):
    """What is proven: no plan is faster than `bound_s`, or none fits a limit below `least_limit_bound_bytes`."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    objective_s: float | None
    bound_s: float
    gap: float | None
    wall_s: float | None
    reason: Name
    reproducible: bool
    memory_price_s_per_gib: float
    least_limit_bytes: Size | None
    least_limit_bound_bytes: Size | None
    seed: int
    versions: dict[Name, int]


class CollectiveDocument(_Strict):
    """One collective of the program."""

    collective: Name
    axes: list[Id]
    value: Id
    time_s: float
    bytes: Size


class CollectivesDocument(_Strict):
    """All collectives of one kind over the same mesh axes."""

    collective: Name
    axes: list[Id]
    count: Size
    time_s: float
    bytes: Size


class CostDocument(_Strict):
    """Time of a step and bytes received, by collective and by mesh axes."""

    step_s: float
    compute_s: float
    communication_s: float
    collective_bytes: Size
    by_collective: list[CollectivesDocument]
    by_axis: dict[Name, Size]
    dearest: list[CollectiveDocument]


class MemoryDocument(_Strict):
    """Peak memory, the value that is made then, its parts, and the bytes live at every instruction."""

    peak_bytes: Size
    at: Id
    by_kind: dict[Name, Size]
    timeline: list[Size]


class FiguresDocument(_Strict):
    """The numbers of a named layout."""

    name: Name
    step_s: float
    collective_bytes: Size
    peak_bytes: Size
    fits: bool


class VerdictDocument(_Strict):
    """The plan run against the unsharded graph; an error that is no number is null."""

    verdict: Literal["equal", "different", "structural"]
    max_relative_error: float | None
    counted_bytes: Size | None
    predicted_bytes: Size
    counted_peak_bytes: Size | None
    predicted_peak_bytes: Size
    devices: Size
    backend: Name
    precision: Name
    shrunk: bool
    seed: int
    not_run: list[Name]


class NothingDocument(_Strict):
    """What an infeasible plan costs and holds."""


class PlanDocument(_Strict):
    """A plan: choice, program, numbers, certificate, verdict.

    `options` has the mesh axes of every loop of an op in the order of its rule, then of every group of operands
    through which a partial sum may pass. Times are seconds, sizes bytes of the device that receives or holds most.
    """

    format: Literal["shardplan.plan"]
    version: Version
    id: str
    graph: PlannedGraphDocument
    mesh: MeshDocument
    hardware: HardwareDocument
    request: RequestDocument
    solver: SolverDocument
    shardings: dict[str, ShardingDocument]
    options: dict[str, AxisLists]
    program: list[dict[str, JsonValue]]
    cost: CostDocument | NothingDocument
    memory: MemoryDocument | NothingDocument
    baselines: list[FiguresDocument]
    verdict: VerdictDocument | None


Document = TypeVar("Document", bound=_Strict)

SCHEMAS: dict[str, type[_Strict]] = {
    "graph": GraphDocument,
    "mesh": MeshDocument,
    "pins": PinsDocument,
    "plan": PlanDocument,
}


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of graph, mesh, pins or plan documents."""
    schema = SCHEMAS[name].model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def checked(kind: type[Document], raw: Any, where: str) -> Document:
    """The document in a JSON value. Raises InvalidDocument with the path to the first fault."""
    try:
        with collector_paused():
            return kind.model_validate(raw)
    except ValidationError as error:
        if error.error_count() > MAX_FAULTS:  # to list a million of them would take seconds and a gigabyte
            raise InvalidDocument("too many faults", where=where, got=error.error_count(), wanted="none") from None
        raise _fault(error.errors(include_url=False, include_context=False)[0], raw, where) from None


def _fault(fault: Any, raw: Any, where: str) -> InvalidDocument:
    kind, got = fault["type"], fault["input"]
    path = _path(fault["loc"], raw, kind == "missing")
    where = f"{where}: {path}" if path else where
    if kind == "missing":
        return InvalidDocument("missing key", where=where, wanted="every key that has no default")
    if kind == "extra_forbidden":
        return InvalidDocument("unknown key", where=where, wanted="the keys of the schema")
    wanted = "an object" if kind == "model_type" else re.sub("^(Input should be|Value error,) ", "", fault["msg"])
    text = _JSON_NAMES.get(type(got)) or json.dumps(got, ensure_ascii=False)
    return InvalidDocument("value does not fit", where=where, got=text, wanted=wanted)


def _path(parts: tuple[int | str, ...], raw: Any, missing: bool) -> str:
    """`nodes[3].op`; parts that name a branch of a type, not a place in the document, are left out."""
    text = ""
    for number, part in enumerate(parts):
        if isinstance(raw, list) and isinstance(part, int):
            raw, text = raw[part], f"{text}[{part}]"
        elif isinstance(raw, dict) and (part in raw or (missing and number == len(parts) - 1)):
            raw, text = raw.get(part), f"{text}.{part}"
    return text.lstrip(".")
