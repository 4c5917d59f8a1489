"""The shape of graph, mesh, pins and plan documents, and the validation of JSON values against it."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, JsonValue, ValidationError, model_validator

from planner.documents.json_reader import gc_paused
from planner.documents.plan_sections import (
    CostDocument,
    FiguresDocument,
    HardwareDocument,
    MemoryDocument,
    NothingDocument,
    RequestDocument,
    SolverDocument,
    VerdictDocument,
)
from planner.documents.renamed_keys import find_new_key, upgrade_plan
from planner.documents.strict_model import (
    AxisList,
    AxisLists,
    Counts,
    Dtype,
    Id,
    Name,
    Shape,
    Size,
    StrictModel,
    Version,
    Version2,
)
from planner.errors import InvalidDocument
from planner.ir.mesh import MAX_DEVICES

MAX_NODES = 30_000
MAX_FAULTS = 100_000
_JSON_NAMES: dict[type, str] = {dict: "an object", list: "an array"}


class PartialDocument(StrictModel):
    """Mesh axes over which the terms must be reduced."""

    reduction: Literal["sum", "max", "min", "product", "average", "bitwise_and", "bitwise_or", "bitwise_xor"] = "sum"
    axes: AxisList


class ShardingDocument(StrictModel):
    """Mesh axes per tensor dim, major first; dims beyond the list are not split.

    `halo_sizes`: before and after, for every split dim. `sharded_dims_offsets`: the cuts of every split dim, one more
    than it has blocks, dim after dim.
    """

    split_axes: AxisLists
    partial: PartialDocument | None = None
    halo_sizes: Counts = Field(default=[])
    sharded_dims_offsets: Counts = Field(default=[])


class TypeDocument(StrictModel):
    """Shape and element type of a value."""

    shape: Shape
    dtype: Dtype


class InputDocument(StrictModel):
    """An input of the graph; `next` is the output that replaces it in the next run."""

    id: Id
    kind: Literal["parameter", "buffer", "input", "constant", "optimizer_state"]
    name: Name
    shape: Shape
    dtype: Dtype
    next: Id | None = None


class NodeDocument(StrictModel):
    """An op. Its first result has the node's id, result k > 0 the id `id:k`.

    `option`: the mesh axes of loops of its rule, by loop name; other loops are not split.
    """

    id: Id
    op: Id
    inputs: Annotated[list[Id], Field(max_length=4096, fail_fast=True)]
    attrs: dict[Name, JsonValue] = Field(default={})
    outputs: Annotated[list[TypeDocument], Field(min_length=1, max_length=1024, fail_fast=True)]
    scope: Name = ""
    phase: Literal["forward", "backward", "update"] = "forward"
    rule: Annotated[str, Field(max_length=4096)] | None = None
    option: dict[Name, AxisList] | None = None


class AnnotationDocument(StrictModel):
    """A required or hinted sharding: of a value where it is defined, or where the node `user` reads it.

    `operand`: the position among the node's inputs, where it reads the value more than once.
    """

    value: Id
    sharding: ShardingDocument
    required: bool = True
    user: Id | None = None
    operand: Size | None = None


class GraphDocument(StrictModel):
    """A computation graph."""

    format: Literal["shardplan.graph"]
    version: Version
    name: Name
    producer: dict[Name, Name] = Field(default={})
    inputs: Annotated[list[InputDocument], Field(max_length=MAX_NODES, fail_fast=True)]
    nodes: Annotated[list[NodeDocument], Field(max_length=MAX_NODES, fail_fast=True)]
    outputs: Annotated[list[Id], Field(min_length=1, max_length=MAX_NODES, fail_fast=True)]
    annotations: Annotated[list[AnnotationDocument], Field(max_length=MAX_NODES, fail_fast=True)] = Field(default=[])


class PinsDocument(StrictModel):
    """Annotations in a file of their own."""

    format: Literal["shardplan.pins"]
    version: Version
    annotations: Annotated[list[AnnotationDocument], Field(max_length=MAX_NODES, fail_fast=True)]


class MeshAxisDocument(StrictModel):
    """One axis; `?` is an unknown size."""

    name: Id
    size: Annotated[int, Field(ge=1, le=MAX_DEVICES)] | Literal["?"]
    link: Id | None = None


class MeshDocument(StrictModel):
    """A device mesh."""

    format: Literal["shardplan.mesh"]
    version: Version
    axes: Annotated[list[MeshAxisDocument], Field(min_length=1, max_length=8)]
    device: Id | None = None


class PlannedGraphDocument(StrictModel):
    """The planned graph with its digest, so that a plan can be run without other files."""

    digest: str
    name: Name
    document: GraphDocument


class PlanDocument(StrictModel):
    """A plan: choice, program, figures, certificate, verdict.

    `recomputed`: ops that are computed again for the backward pass, each with the op that it precedes. `options`: the
    mesh axes of every loop of an op in the order of its rule, then of every group of operands through which a partial
    sum may pass. Times are seconds, sizes bytes of the device that receives or holds most. `digest` covers the rest of
    the document; plans of version 1 are read without it.
    """

    format: Literal["shardplan.plan"]
    version: Version2
    id: str
    graph: PlannedGraphDocument
    mesh: MeshDocument
    hardware: HardwareDocument
    request: RequestDocument
    solver: SolverDocument
    shardings: dict[str, ShardingDocument]
    options: dict[str, AxisLists]
    recomputed: dict[Id, Id]
    program: list[dict[str, JsonValue]]
    cost: CostDocument | NothingDocument
    memory: MemoryDocument | NothingDocument
    baselines: list[FiguresDocument]
    verdict: VerdictDocument | None
    digest: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, raw: Any) -> Any:
        return upgrade_plan(raw)


Document = TypeVar("Document", bound=StrictModel)


def validate_document(kind: type[Document], raw: Any, where: str) -> Document:
    """Return the document in a JSON value. Raises InvalidDocument with the path to the first fault."""
    try:
        with gc_paused():
            return kind.model_validate(raw)
    except ValidationError as error:
        if error.error_count() > MAX_FAULTS:  # listing a million faults would take seconds and a gigabyte
            raise InvalidDocument("too many faults", where=where, got=error.error_count(), wanted="none") from None
        faults = error.errors(include_url=False, include_context=False)
        unknown = (fault for fault in faults if fault["type"] == "extra_forbidden")
        renamed = (fault for fault in unknown if find_new_key(_fault_pointer(fault["loc"], raw, missing=False)))
        raise _format_fault(next(renamed, faults[0]), raw, where) from None


def _format_fault(fault: Any, raw: Any, where: str) -> InvalidDocument:
    kind, got = fault["type"], fault["input"]
    place = _fault_pointer(fault["loc"], raw, missing=kind == "missing")
    pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in place)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    where = f"{where}: {path}" if path else where
    if kind == "missing":
        return InvalidDocument("missing key", where=where, wanted="every key without a default", pointer=pointer)
    if kind == "extra_forbidden" and (new_name := find_new_key(place)):
        return InvalidDocument(f"{place[-1]} is now {new_name}", where=where, pointer=pointer)
    if kind == "extra_forbidden":
        return InvalidDocument("unknown key", where=where, wanted="the keys of the schema", pointer=pointer)
    wanted = "an object" if kind == "model_type" else re.sub("^(Input should be|Value error,) ", "", fault["msg"])
    text = _JSON_NAMES.get(type(got)) or json.dumps(got, ensure_ascii=False, default=str)
    return InvalidDocument("value does not fit", where=where, got=text, wanted=wanted, pointer=pointer)


def _fault_pointer(parts: tuple[int | str, ...], raw: Any, *, missing: bool) -> list[int | str]:
    """Return the path to a fault, such as `nodes`, 3, `op`, without parts that name a branch of a union."""
    place: list[int | str] = []
    for number, part in enumerate(parts):
        if isinstance(raw, list) and isinstance(part, int):
            raw, place = raw[part], [*place, part]
        elif isinstance(raw, dict) and (part in raw or (missing and number == len(parts) - 1)):
            raw, place = raw.get(part), [*place, part]
    return place
