"""Checkpoints of torch.distributed.checkpoint, written anew in the shards of another plan.

Entries are matched with the plan's state by the ends of their keys: `model.layers.0.weight` is the parameter
`layers.0.weight`, `optimizer.state.layers.0.weight.exp_avg` its state. A state that the plan does not have, of the
shape of its parameter, lies as the parameter does; all else is written whole by the first device. One piece at a time
is read and written: memory holds a shard of the new plan and one of the old.
"""

from __future__ import annotations

import io
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from planner.errors import InvalidDocument, InvalidGraph, InvalidRequest
from planner.export.torch_program.op_functions import dtype_name
from planner.ir.graph import Input
from planner.ir.program import Program, follow_update
from planner.ir.sharding import held_bounds

METADATA, WHOLE = ".metadata", "a folder that torch.distributed.checkpoint.save wrote"
Box = tuple[tuple[int, int], ...]
"""The ends of a piece in every dim."""


@dataclass(frozen=True, slots=True)
class ConvertedCheckpoint:
    """How many tensors were written, their bytes, and the most bytes that one device has to read."""

    tensors: int
    total_bytes: int
    max_device_bytes: int


def convert_checkpoint(source: Path, target: Path, new: Program) -> ConvertedCheckpoint:
    """Write the checkpoint `source` as `target`, in the shards of the plan `new`; `target` appears whole or not at all.

    Raises InvalidDocument for what is no checkpoint, InvalidGraph for one of another model or without a parameter, and
    InvalidRequest where `target` exists or the disk has too little room.
    """
    reader, metadata = _open_checkpoint(source)
    tensors = {key: each for key, each in metadata.state_dict_metadata.items() if _is_tensor(each)}
    layouts = _match_state(tensors, new, str(source))
    total = sum(_count_bytes(each.size, each) for each in tensors.values())
    _check_target(target, total)
    pieces = _assign_pieces(tensors, layouts, new)
    with _write_atomically(target) as folder:
        _write_pieces(_Copier(reader, metadata), folder, pieces)
    loads = [sum(_count_bytes(_shape(box), tensors[key]) for key, box in listed) for listed in pieces]
    return ConvertedCheckpoint(len(tensors), total, max(loads))


def _open_checkpoint(source: Path) -> tuple[FileSystemReader, Metadata]:
    if not (source / METADATA).is_file():
        raise InvalidDocument("checkpoint", where=str(source), got=f"no file {METADATA}", wanted=WHOLE)
    reader = FileSystemReader(source)
    try:
        metadata = reader.read_metadata()
        reader.set_up_storage_reader(metadata, is_coordinator=True)
    except Exception as error:  # unpickling raises anything
        got = f"{type(error).__name__}: {error}"
        raise InvalidDocument("checkpoint", where=str(source / METADATA), got=got, wanted=WHOLE) from error
    files = {source / each.relative_path for each in metadata.storage_data.values()}
    if missing := sorted(path.name for path in files if not path.is_file()):
        raise InvalidDocument("checkpoint", where=str(source), got=f"no file {missing[0]}", wanted=WHOLE)
    return reader, metadata


def _is_tensor(entry: Any) -> bool:
    return isinstance(entry, TensorStorageMetadata)


def _match_state(tensors: Mapping[str, TensorStorageMetadata], new: Program, where: str) -> dict[str, str]:
    """Return the value of the program in whose shards each tensor is written, by key."""
    state = {entry.name: entry for entry in new.graph.inputs if entry.kind != "input"}
    layouts, missing = dict[str, str](), {name for name, entry in state.items() if entry.kind == "parameter"}
    for key, stored in tensors.items():
        parts = key.split(".")
        ends = [".".join(parts[start:]) for start in range(len(parts))]
        if (name := next((end for end in ends if end in state), None)) is not None:
            _check_type(key, stored, state[name], where=where)
            layouts[key] = _find_layout(new, state[name])
            missing.discard(name)
        elif (owner := _find_owner(parts, state)) is None:
            wanted = "tensors of the plan's model and of its optimizer"
            raise InvalidGraph("checkpoint of another model", where=where, got=key, wanted=wanted)
        elif tuple(stored.size) == owner.type.shape:
            layouts[key] = _find_layout(new, owner)
    if missing:
        raise InvalidGraph("checkpoint without a parameter", where=where, got="nothing", wanted=sorted(missing)[0])
    return layouts


def _find_owner(parts: list[str], state: Mapping[str, Input]) -> Input | None:
    """Return the parameter whose name a key has before its last part."""
    owners = [".".join(parts[start:-1]) for start in range(1, len(parts) - 1)]
    return next((state[name] for name in owners if name in state and state[name].kind == "parameter"), None)


def _check_type(key: str, stored: TensorStorageMetadata, entry: Input, *, where: str) -> None:
    wanted = getattr(torch, dtype_name(entry.type.dtype)), entry.type.shape
    got = stored.properties.dtype, tuple(stored.size)
    if got != wanted:
        raise InvalidGraph("checkpoint of another model", where=f"{where}: {key}", got=got, wanted=wanted)


def _find_layout(new: Program, entry: Input) -> str:
    """Return the value that is held between steps: a parameter that is updated in another layout is held in that."""
    if entry.kind == "parameter" and entry.id in new.graph.state_outputs.values():
        moves = follow_update(new, entry.id)
        return moves[0].operand if moves else entry.id
    return entry.id


def _check_target(target: Path, needed: int) -> None:
    if target.exists():
        raise InvalidRequest("target of the checkpoint", where=str(target), got="it exists", wanted="a new folder")
    if not target.parent.is_dir():
        raise InvalidRequest("target of the checkpoint", where=str(target.parent), got="no folder", wanted="a folder")
    if (free := shutil.disk_usage(target.parent).free) < needed:
        what, wanted = "not enough disk space", f"at least {needed} B"
        raise InvalidRequest(what, where=str(target.parent), got=f"{free} B", wanted=wanted)


@contextmanager
def _write_atomically(target: Path) -> Iterator[Path]:
    """Give a folder beside the target that takes its name when it is whole, and is removed where it is not."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as held:
            (folder := Path(held, target.name)).mkdir()
            yield folder
            folder.rename(target)
    except OSError as error:
        got = error.strerror or str(error)
        raise InvalidRequest("cannot write the checkpoint", where=str(target), got=got) from error


def _count_bytes(shape: Any, stored: TensorStorageMetadata) -> int:
    return int(math.prod(shape) * stored.properties.dtype.itemsize)


def _shape(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def _assign_pieces(
    tensors: Mapping[str, TensorStorageMetadata], layouts: Mapping[str, str], new: Program
) -> list[list[tuple[str, Box]]]:
    """Return what each device writes: every piece once, by the one of its holders that has the least to write."""
    pieces, loads = [list[tuple[str, Box]]() for _ in range(new.mesh.devices)], [0] * new.mesh.devices
    for key, stored in tensors.items():
        for box, holders in _list_boxes(tuple(stored.size), layouts.get(key), new):
            device = min(holders, key=loads.__getitem__)
            pieces[device].append((key, box))
            loads[device] += _count_bytes(_shape(box), stored)
    return pieces


def _list_boxes(shape: tuple[int, ...], value: str | None, new: Program) -> Iterator[tuple[Box, list[int]]]:
    """Yield the pieces of a tensor and the devices that hold them; a tensor with halos is one piece."""
    whole: Box = tuple((0, size) for size in shape)
    if value is None or (sharding := new.values[value].sharding).halo_sizes or math.prod(shape) == 0:
        yield whole, [0]
        return
    holders = dict[Box, list[int]]()
    bounds = np.minimum(held_bounds(sharding, shape, new.mesh), np.array(shape)[:, None]).tolist()
    for device, ends in enumerate(bounds):
        holders.setdefault(tuple((start, stop) for start, stop in ends), []).append(device)
    yield from ((box, devices) for box, devices in holders.items() if all(start < stop for start, stop in box))


def _write_pieces(copier: _Copier, folder: Path, pieces: list[list[tuple[str, Box]]]) -> None:
    """Write a file for every device, and the metadata."""
    metadata = copier.metadata
    others = [key for key, each in metadata.state_dict_metadata.items() if isinstance(each, BytesStorageMetadata)]
    chunks: dict[str, list[ChunkStorageMetadata]] = {}
    plans = []
    for device, listed in enumerate(pieces):
        items = [WriteItem(MetadataIndex(key), WriteItemType.BYTE_IO) for key in others] if device == 0 else []
        for key, box in listed:
            stored = metadata.state_dict_metadata[key]
            chunk = ChunkStorageMetadata(torch.Size(start for start, _ in box), torch.Size(_shape(box)))
            chunks.setdefault(key, []).append(chunk)
            index = MetadataIndex(key, chunk.offsets, len(chunks[key]) - 1)
            data = TensorWriteData(chunk, stored.properties, stored.size)
            items.append(WriteItem(index, WriteItemType.SHARD, tensor_data=data))
        plans.append(SavePlan(items))
    # One file a device, on one thread: the writer asks for the pieces one after another.
    writer = FileSystemWriter(folder, single_file_per_rank=True, thread_count=1)
    writer.reset(folder)
    writer.set_up_storage_writer(is_coordinator=True)
    plans = writer.prepare_global_plan([writer.prepare_local_plan(plan) for plan in plans])
    results = [writer.write_data(plan, copier).value() for plan in plans if plan.items]
    entries = {
        key: replace(each, chunks=chunks[key]) if _is_tensor(each) else each
        for key, each in metadata.state_dict_metadata.items()
    }
    writer.finish(Metadata(entries, planner_data=metadata.planner_data), results)


class _Copier(DefaultSavePlanner):  # type: ignore[misc]  # torch is untyped here
    """Gives a writer the pieces of another checkpoint, each when it is asked for."""

    def __init__(self, reader: FileSystemReader, metadata: Metadata) -> None:
        super().__init__()
        self.reader, self.metadata = reader, metadata

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        index, taken = write_item.index, _Taken()
        if write_item.type is WriteItemType.BYTE_IO:
            nowhere = torch.Size((0,))
            items = [ReadItem(LoadItemType.BYTE_IO, index, nowhere, index, nowhere, nowhere)]
        else:
            data = write_item.tensor_data
            taken.made = torch.empty(data.chunk.sizes, dtype=data.properties.dtype)
            items = create_read_items_for_chunk_list(
                index.fqn, self.metadata.state_dict_metadata[index.fqn], [data.chunk]
            )
            if sum(math.prod(each.lengths) for each in items) < data.chunk.sizes.numel():
                got = f"not all pieces of {index.fqn}"
                raise InvalidDocument("checkpoint", where=str(self.reader.path), got=got, wanted=WHOLE)
        try:
            self.reader.read_data(LoadPlan(items), taken).wait()
        except Exception as error:  # unpickling raises anything, EOFError too, which typer takes for Ctrl-D
            got = f"{type(error).__name__} in {index.fqn}"
            raise InvalidDocument("checkpoint", where=str(self.reader.path), got=got, wanted=WHOLE) from error
        return taken.made


class _Taken(DefaultLoadPlanner):  # type: ignore[misc]  # torch is untyped here
    """Takes one piece from a reader."""

    made: Any = None

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        self.made = value

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        cut = zip(read_item.dest_offsets, read_item.lengths, strict=True)
        return self.made[tuple(slice(start, start + length) for start, length in cut)]

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Do nothing: a resolved tensor is a view of the piece."""
