"""Annotations by place: the shardings requested for definitions and for uses.

A value has one definition and many uses (an operand of an op, an output of the graph), and each may be annotated
once. An annotation for a user that reads the value several times covers all these uses, unless it names one. Two
different annotations of one definition or one use are undefined in the mesh dialect and refused. The exception: beside
a required annotation of a value, hints (required = false) of other shardings are dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from planner.errors import InvalidSharding
from planner.ir.execution_order import Reader, find_readers
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Note:
    """A sharding, and whether it is required."""

    sharding: Sharding
    required: bool = True


@dataclass(frozen=True, slots=True)
class Notes:
    """Annotated definitions by value, and annotated uses by reader."""

    definitions: Mapping[str, Note]
    uses: Mapping[Reader, Note]


def collect_notes(graph: Graph, mesh: Mesh) -> Notes:
    """Return the annotations of a graph, completed to the ranks of the tensors.

    Raises InvalidSharding for one that its tensor or mesh cannot have, and for two that contradict each other.
    """
    by_reader = find_readers(graph)
    places = {op.id: position for position, op in enumerate(graph.ops)}
    definitions: dict[str, Note] = {}
    uses: dict[Reader, Note] = {}
    for entry in _drop_overridden_hints(graph, mesh):
        note = Note(entry.sharding, entry.required)
        if entry.user is None:
            _add_note(definitions, entry.value, note, where=f"definition of {entry.value!r}")
            continue
        for reader in _annotated_readers(entry, by_reader.get(entry.value, []), places):
            _add_note(uses, reader, note, where=f"use of {entry.value!r} by {entry.user!r} as operand {reader.operand}")
    order = [reader for value in by_reader.values() for reader in value if reader in uses]
    return Notes(definitions, {reader: uses[reader] for reader in order})


def _drop_overridden_hints(graph: Graph, mesh: Mesh) -> list[Annotation]:
    completed = []
    required: dict[str, set[Sharding]] = defaultdict(set)
    for entry in graph.annotations:
        kind, where = graph.types[entry.value], entry.where
        sharding = entry.sharding.checked(kind.shape, mesh, where)
        if sharding.partial and (wanted := sharding.reduction.dtype_error(kind.dtype)):
            what = f"reduction {sharding.reduction} over an element type"
            raise InvalidSharding(what, where=where, got=kind.dtype, wanted=wanted)
        completed.append(replace(entry, sharding=sharding))
        if entry.required:
            required[entry.value].add(sharding)
    return [e for e in completed if e.required or required.get(e.value, {e.sharding}) == {e.sharding}]


def _annotated_readers(entry: Annotation, readers: Sequence[Reader], places: Mapping[str, int]) -> list[Reader]:
    """Return the uses that an annotation is for; the graph has checked that there are any."""
    place = places.get(entry.user or "")
    users = [reader for reader in readers if reader.op == place] or [reader for reader in readers if reader.op is None]
    return [reader for reader in users if entry.operand in (None, reader.operand)]


def _add_note(into: dict[Key, Note], key: Key, note: Note, *, where: str) -> None:
    present = into.get(key, note)
    into[key] = Note(present.sharding, present.required or note.required)
    if present.sharding != note.sharding:
        raise InvalidSharding(
            "two different annotations in one place",
            where=where,
            got=f"{present.sharding} and {note.sharding}",
            wanted="one sharding",
        )
