"""Resharding cases from files; reshard paths and migrations as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from planner.choose.cost import PICO
from planner.documents.graphs import dump_mesh, dump_sharding, load_sharding
from planner.documents.json_reader import read_json
from planner.documents.programs import dump_program
from planner.documents.schemas import ShardingDocument, validate_document
from planner.documents.strict_model import Id, Name, Size, StrictModel
from planner.errors import ShardplanError
from planner.ir.collectives import Collective
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Sharding
from planner.ir.transfers import Transfers
from planner.reshard.cheapest_path import ReshardPath
from planner.reshard.comm_rounds import color_edges, count_rounds
from planner.reshard.cross_mesh import PlacedSharding
from planner.reshard.cross_mesh_cost import CrossMeshReshard
from planner.usecases.migrate import Migration, ReshardWay


class CaseDocument(StrictModel):
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


class CasesDocument(StrictModel):
    """A list of resharding cases."""

    about: str = ""
    cases: Annotated[list[CaseDocument], Field(max_length=100_000, fail_fast=True)]


def read_cases(path: Path) -> list[tuple[str, PlacedSharding, PlacedSharding, TensorType]]:
    """Return name, source, target and type of every case in a file. Raises ShardplanError with the case's name."""
    cases = []
    for case in validate_document(CasesDocument, read_json(path), str(path)).cases:
        try:
            mesh = Mesh.parse("x".join(map(str, case.mesh)))
            ends = [
                PlacedSharding(load_sharding(end, mesh), mesh, tuple(range(mesh.devices)))
                for end in (case.source, case.target)
            ]
            cases.append((case.name, ends[0], ends[1], TensorType(tuple(case.shape), case.dtype)))
        except ShardplanError as error:
            raise error.at(f"{path}: case {case.name!r}") from None
    return cases


def dump_reshard(name: str, way: ReshardWay, verified: bool | None, *, scheduled: bool = False) -> dict[str, Any]:
    """Return a reshard path with its figures.

    Bytes are received bytes; `min_total_bytes` is the least that any method must move.
    """
    route = way if isinstance(way, ReshardPath) else None
    per_device = way.received.reshape(-1, way.received.shape[-1]).sum(axis=0)
    steps = _dump_steps(way, scheduled) if isinstance(way, ReshardPath) else [_dump_cross_mesh(way, scheduled)]
    return {
        "name": name,
        "steps": steps,
        "total_bytes": int(per_device.sum()),
        "max_device_bytes": int(per_device.max()),
        "min_total_bytes": way.min_bytes,
        "verified": verified,
        "device_bytes": per_device.tolist(),
        "time_s": _total_time_ps(way) * PICO,
        "bound_s": route.bound_ps * PICO if route else None,
        "bound_bytes": route.bound_bytes if route else way.min_bytes,
        "peak_buffer_bytes": int(way.buffer_bytes.max()),
        "peak_bytes": route.peak_bytes if route else int(way.buffer_bytes.sum(axis=0).max()),
        "rounds": sum(step["rounds"] for step in steps),
    }


def _total_time_ps(way: ReshardWay) -> int:
    return sum(way.times_ps) if isinstance(way, ReshardPath) else way.time_ps


def _dump_steps(way: ReshardPath, scheduled: bool) -> list[dict[str, Any]]:
    listed = zip(way.moves, way.states, way.times_ps, way.received, dump_program(way.program)[:-1], strict=False)
    return [
        {
            **document,
            "time_s": time * PICO,
            "bytes": int(received.sum()),
            "max_device_bytes": int(received.max()),
            "rounds": _dump_rounds(move, held, way),
            **(_dump_schedule(_dump_exchange(move, held, way), way.kind) if scheduled and move.is_exchange else {}),
        }
        for move, held, time, received, document in listed
    ]


def _dump_exchange(move: Collective, held: Sharding, way: ReshardPath) -> Transfers:
    return plan_transfers(held, move.target(held), way.kind.shape, way.model.mesh, move.axes)


def _dump_rounds(move: Collective, held: Sharding, way: ReshardPath) -> int:
    """Count the rounds of a move.

    In a round a device sends to at most one other and receives from at most one; the steps of a ring are rounds.
    """
    if move.is_exchange:
        return sum(count_rounds(_dump_exchange(move, held, way)))
    return move.definition.ring_passes * (way.model.mesh.group_size(move.axes) - 1)


def _dump_cross_mesh(way: CrossMeshReshard, scheduled: bool) -> dict[str, Any]:
    return {
        "collective": "exchange",
        "from": _load_layout(way.source),
        "to": _load_layout(way.target),
        "time_s": way.time_ps * PICO,
        "bytes": int(way.received.sum()),
        "max_device_bytes": int(way.received.max()),
        "rounds": sum(count_rounds(way.transfers)),
        **(_dump_schedule(way.transfers, way.kind) if scheduled else {}),
    }


def _load_layout(place: PlacedSharding) -> dict[str, Any]:
    sharding = dump_sharding(place.sharding, place.mesh)
    return {"mesh": dump_mesh(place.mesh), "devices": list(place.devices), "sharding": sharding}


def _dump_schedule(done: Transfers, kind: TensorType) -> dict[str, Any]:
    """Return rounds of messages (sender, receiver, bytes), those of terms first."""
    rounds: list[list[list[int]]] = []
    for messages in done.messages:
        colors = color_edges(messages, done.devices)
        rows = np.stack([messages.sender, messages.receiver, messages.elements * kind.itemsize], axis=1)
        rounds += [rows[colors == number].tolist() for number in range(colors.max(initial=-1) + 1)]
    return {"schedule": rounds}


def dump_migration(found: Migration, verified: bool | None) -> dict[str, Any]:
    """Return what it takes to bring all state from one plan's layout to another's."""
    ways = {id(way): dump_reshard("", way, None) for way in found.distinct_ways}
    return {
        "values": [_dump_value(entry.name or entry.id, ways[id(way)]) for entry, way in found.values],
        "total_bytes": int(found.received.sum()),
        "max_device_bytes": int(found.received.max(initial=0)),
        "min_total_bytes": found.min_bytes,
        "time_s": found.time_ps * PICO,
        "peak_buffer_bytes": max((way["peak_buffer_bytes"] for way in ways.values()), default=0),
        "verified": verified,
    }


def _dump_value(name: str, way: dict[str, Any]) -> dict[str, Any]:
    keys = ("steps", "total_bytes", "max_device_bytes", "min_total_bytes", "time_s", "rounds")
    return {"name": name, **{key: way[key] for key in keys}}
