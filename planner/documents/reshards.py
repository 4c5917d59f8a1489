"""Resharding cases from files; ways between layouts, and migrations, as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from planner.choose.cost import PICO
from planner.choose.handover import Handover
from planner.choose.route import Route
from planner.documents.graphs import mesh_document, sharding_document, sharding_from
from planner.documents.programs import program_document
from planner.documents.reading import read_json
from planner.documents.schemas import ShardingDocument, checked
from planner.documents.strict import Id, Name, Size, Strict
from planner.errors import ShardplanError
from planner.migration import Migration, Way
from planner.model.between import Place
from planner.model.collectives import Collective, Kind
from planner.model.exchange import Transfers, exchange
from planner.model.graph import TensorType
from planner.model.mesh import Mesh
from planner.model.rounds import packed, rounds_of
from planner.model.sharding import Sharding


class CaseDocument(Strict):
    """One resharding: mesh axis sizes, a tensor, and its shardings before and after."""

    name: Name
    kind: Name = ""
    mesh: Annotated[list[Size], Field(min_length=1, max_length=8)]
    shape: Annotated[list[Size], Field(max_length=16)]
    dtype: Id
    source: ShardingDocument
    target: ShardingDocument
    min_total_bytes: Size | None = None
    min_device_bytes: Size | None = None


class CasesDocument(Strict):
    """A list of resharding cases."""

    about: str = ""
    cases: Annotated[list[CaseDocument], Field(max_length=100_000, fail_fast=True)]


def read_cases(path: Path) -> list[tuple[str, Place, Place, TensorType]]:
    """Name, source, target and type of every case in a file. Raises ShardplanError with the case's name."""
    found = []
    for case in checked(CasesDocument, read_json(path), str(path)).cases:
        try:
            mesh = Mesh.parse("x".join(map(str, case.mesh)))
            ends = [
                Place(sharding_from(end, mesh), mesh, tuple(range(mesh.devices))) for end in (case.source, case.target)
            ]
            found.append((case.name, ends[0], ends[1], TensorType(tuple(case.shape), case.dtype)))
        except ShardplanError as error:
            raise error.at(f"{path}: case {case.name!r}") from None
    return found


def reshard_document(name: str, way: Way, verified: bool | None, scheduled: bool = False) -> dict[str, Any]:
    """A way with its figures. Bytes are received; `min_total_bytes` must be by any method."""
    route = way if isinstance(way, Route) else None
    per_device = way.received.reshape(-1, way.received.shape[-1]).sum(axis=0)
    steps = _moves(way, scheduled) if isinstance(way, Route) else [_handover(way, scheduled)]
    return {
        "name": name,
        "steps": steps,
        "total_bytes": int(per_device.sum()),
        "max_device_bytes": int(per_device.max()),
        "min_total_bytes": way.least_bytes,
        "verified": verified,
        "device_bytes": per_device.tolist(),
        "time_s": _time_ps(way) * PICO,
        "bound_s": route.bound_ps * PICO if route else None,
        "bound_bytes": route.bound_bytes if route else way.least_bytes,
        "peak_buffer_bytes": int(way.buffers.max()),
        "peak_bytes": route.peak_bytes if route else int(way.buffers.sum(axis=0).max()),
        "rounds": sum(step["rounds"] for step in steps),
    }


def _time_ps(way: Way) -> int:
    return sum(way.times_ps) if isinstance(way, Route) else way.time_ps


def _moves(way: Route, scheduled: bool) -> list[dict[str, Any]]:
    listed = zip(way.moves, way.states, way.times_ps, way.received, program_document(way.program)[:-1], strict=False)
    return [
        {
            **document,
            "time_s": time * PICO,
            "bytes": int(received.sum()),
            "max_device_bytes": int(received.max()),
            "rounds": _rounds(move, held, way),
            **(_schedule(_exchange(move, held, way), way.kind) if scheduled and move.kind is Kind.EXCHANGE else {}),
        }
        for move, held, time, received, document in listed
    ]


def _exchange(move: Collective, held: Sharding, way: Route) -> Transfers:
    return exchange(held, move.target(held), way.kind.shape, way.model.mesh)


def _rounds(move: Collective, held: Sharding, way: Route) -> int:
    """In each a device sends to one other at most and receives from one at most; steps of a ring are rounds."""
    ring = way.model.mesh.group_size(move.axes) - 1
    match move.kind:
        case Kind.EXCHANGE:
            return sum(rounds_of(_exchange(move, held, way)))
        case Kind.ALL_SLICE:
            return 0
        case Kind.ALL_REDUCE:
            return 2 * ring
        case _:
            return ring


def _handover(way: Handover, scheduled: bool) -> dict[str, Any]:
    return {
        "collective": "exchange",
        "from": _place(way.source),
        "to": _place(way.target),
        "time_s": way.time_ps * PICO,
        "bytes": int(way.received.sum()),
        "max_device_bytes": int(way.received.max()),
        "rounds": sum(rounds_of(way.transfers)),
        **(_schedule(way.transfers, way.kind) if scheduled else {}),
    }


def _place(place: Place) -> dict[str, Any]:
    sharding = sharding_document(place.sharding, place.mesh)
    return {"mesh": mesh_document(place.mesh), "devices": list(place.devices), "sharding": sharding}


def _schedule(done: Transfers, kind: TensorType) -> dict[str, Any]:
    """Rounds of messages (sender, receiver, bytes), those of terms first."""
    rounds: list[list[list[int]]] = []
    for messages in done.messages:
        at = packed(messages, done.devices)
        rows = np.stack([messages.sender, messages.receiver, messages.elements * kind.itemsize], axis=1)
        rounds += [rows[at == number].tolist() for number in range(at.max(initial=-1) + 1)]
    return {"schedule": rounds}


def migration_document(found: Migration, verified: bool | None) -> dict[str, Any]:
    """What it takes to bring all state from one plan's layout to another's."""
    ways = {id(way): reshard_document("", way, None) for way in found.ways}
    return {
        "values": [_value(entry.name or entry.id, ways[id(way)]) for entry, way in found.values],
        "total_bytes": int(found.received.sum()),
        "max_device_bytes": int(found.received.max(initial=0)),
        "min_total_bytes": found.least_bytes,
        "time_s": found.time_ps * PICO,
        "peak_buffer_bytes": max((way["peak_buffer_bytes"] for way in ways.values()), default=0),
        "verified": verified,
    }


def _value(name: str, way: dict[str, Any]) -> dict[str, Any]:
    keys = ("steps", "total_bytes", "max_device_bytes", "min_total_bytes", "time_s", "rounds")
    return {"name": name, **{key: way[key] for key in keys}}
