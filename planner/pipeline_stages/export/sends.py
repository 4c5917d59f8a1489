"""What processes send each other between stages, as tables of pieces (`planner.export.torch_program.exchange`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.errors import InvalidSharding
from planner.ir.sharding import held_bounds
from planner.ir.transfers import flat_part_bounds
from planner.pipeline_stages.export.passes import output_name
from planner.reshard.cross_mesh import plan_cross_mesh_transfers
from planner.run.pipeline import StageProgram

Piece = tuple[tuple[tuple[int, int], ...], int, int]
"""A box by its ends in every dim, and the start and stop of elements of the flattened box."""


@dataclass
class EdgeTables:
    """A value that goes from one stage to another, by rank in the mesh of a stage.

    sent      pieces of what a process holds, by the number of the process that gets them
    received  where pieces go that come, by the number of the process that sends them
    copied    pieces that a process of both stages holds already, and where they go
    shapes    of what a process receives
    """

    value: str
    source: int
    target: int
    sent: list[dict[int, list[Piece]]] = field(default_factory=list)
    received: list[dict[int, list[Piece]]] = field(default_factory=list)
    copied: list[list[tuple[Piece, Piece]]] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)


def list_edges(stages: Sequence[StageProgram]) -> list[EdgeTables]:
    """Return the values that stages send each other: up, down, and in the update."""
    return [
        _fill_tables(stages, EdgeTables(value, number, target))
        for number, targets in enumerate(list_targets(stages))
        for value, target in targets.items()
    ]


def list_targets(stages: Sequence[StageProgram]) -> list[Mapping[str, int]]:
    """Return for each stage the values that it sends, with the numbers of the stages that receive them.

    Stages may pass a value on, so that several send it.
    """
    target_of = {value: number for number, stage in enumerate(stages) for value in stage.received_sums}
    return [
        {
            **dict.fromkeys(stage.sent, number + 1),
            **dict.fromkeys(stage.sent_gradients, number - 1),
            **{value: target_of[value] for value in stage.sent_sums},
        }
        for number, stage in enumerate(stages)
    ]


def _fill_tables(stages: Sequence[StageProgram], edge: EdgeTables) -> EdgeTables:
    source, target = stages[edge.source], stages[edge.target]
    shape = source.program.graph.types[edge.value].shape
    ends = source.place(output_name(source.program, edge.value)), target.place(edge.value)
    if ends[0].sharding.partial:
        raise InvalidSharding("terms sent between stages", where=f"value {edge.value!r}", wanted="a reduced value")
    done = plan_cross_mesh_transfers(ends[0], ends[1], shape)
    bounds = [held_bounds(place.sharding, shape, place.mesh) for place in ends]
    edge.shapes = [tuple(size) for size in (bounds[1][..., 1] - bounds[1][..., 0]).tolist()]
    edge.sent, edge.received = [{} for _ in source.devices], [{} for _ in target.devices]
    edge.copied = [[] for _ in target.devices]
    first_source, first_target = source.devices[0], target.devices[0]
    starts, stops = flat_part_bounds(done.cell_sizes[done.copy.cell], done.copy.part, done.copy.parts)
    columns = (done.copy.cell, starts, stops, done.copy.sender, done.copy.receiver)
    for cell, start, stop, sender, receiver in zip(*(each.tolist() for each in columns), strict=True):
        if start < stop:
            own, other = sender - first_source, receiver - first_target
            pieces = [_piece(done.cells[cell], (start, stop), origin) for origin in (bounds[0][own], bounds[1][other])]
            edge.sent[own].setdefault(receiver, []).append(pieces[0])
            edge.received[other].setdefault(sender, []).append(pieces[1])
    boxes, has_some = done.endpoints.overlaps()
    for device in np.flatnonzero(has_some).tolist():
        own, other = device - first_source, device - first_target
        whole = 0, int((boxes[device][:, 1] - boxes[device][:, 0]).prod())
        pieces = [_piece(boxes[device], whole, origin) for origin in (bounds[0][own], bounds[1][other])]
        edge.copied[other].append((pieces[0], pieces[1]))
    return edge


def _piece(box: Any, part: tuple[int, int], held: Any) -> Piece:
    ends = (box - held[:, :1]).tolist()
    return tuple((low, high) for low, high in ends), *part
