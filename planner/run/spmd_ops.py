"""Runs calls of the dialect on the devices' local tensors: group collectives, halos, point to point, queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.errors import InvalidProgram, RunFailed
from planner.ir.sharding import Reduction
from planner.run.collectives import Reducer
from planner.run.group_ops import MOVEMENTS, REDUCTIONS, CollectiveGroup
from planner.run.halo import update_halos
from planner.run.mailbox import DeviceMessage, Mailbox
from planner.run.participants import Participants
from planner.run.transport import Communicator
from planner.run.undef import PartialArray, check_movement
from planner.run.value_store import ValueStore
from planner.spmd.attributes import GENERIC
from planner.spmd.folding import mesh_sizes, multi_index, shard_sizes
from planner.spmd.halo import per_dim
from planner.spmd.op_def import DYNAMIC
from planner.spmd.verify import count_dynamic_numbers, op_def_of

Array = Any
Reducers = Mapping[str, Callable[[Array, Array], Array]]


def resolve_attributes(task: Participants, memory: ValueStore, device: int) -> dict[str, Any]:
    """Return the attributes with every dynamic number read from its operand, and checked as a static one is."""
    row, call, attrs = op_def_of(task.call), task.call, dict(task.attrs)
    count = count_dynamic_numbers(row, attrs)
    if not count:
        return attrs
    values = iter([memory.read_number(name, device, task.where) for name in call.operands[-count:]])
    for key in row.dynamic_attrs:
        attrs[key] = _fill_dynamic(attrs[key], values)
    assert task.signature is not None
    signature = replace(task.signature, attrs=attrs)
    try:
        for key in row.dynamic_attrs:
            row.attrs[key](signature, key, attrs[key])
    except InvalidProgram as error:
        raise RunFailed(
            f"{error.what}, on device {device}", where=error.where, got=error.got, wanted=error.wanted
        ) from None
    return attrs


def _fill_dynamic(value: Any, values: Iterator[int]) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(next(values) if each is DYNAMIC else each for each in value)
    return next(values, None) if value is DYNAMIC else value


def run_group(task: Participants, members: Sequence[int], memory: ValueStore, *, reducers: Reducers) -> list[int]:
    """Run a collective over one group, and return the bytes that every member received."""
    if task.attrs.get("target") is not None:
        return _permute_between_meshes(task, members, memory)
    group = _group(task, members, memory)
    if task.call.op == "update_halo":
        _update_halo(task, group, members, memory=memory)
    elif task.call.op in REDUCTIONS:
        _run_reduction(task, group, members, memory=memory, reducers=reducers)
    else:
        _run_movement(task, group, members, memory=memory)
    size = task.call.types[0].itemsize
    return [count * size for count in group.communicator.received]


def _group(task: Participants, members: Sequence[int], memory: ValueStore) -> CollectiveGroup:
    attrs = [resolve_attributes(task, memory, device) for device in members]
    for device, mine in zip(members, attrs, strict=True):
        if mine != attrs[0]:
            key = next(key for key in mine if mine[key] != attrs[0][key])
            raise RunFailed(
                f"devices {members[0]} and {device} of one group disagree on {key}",
                where=task.where,
                got=mine[key],
                wanted=attrs[0][key],
            )
    sizes = [task.mesh.shape[axis] for axis in task.axes]
    return CollectiveGroup(memory.xp, Communicator(len(members)), task.axes, sizes, attrs[0], task.where)


def _run_movement(task: Participants, group: CollectiveGroup, members: Sequence[int], *, memory: ValueStore) -> None:
    name, (result,), move = task.call.operands[0], task.call.results, MOVEMENTS[task.call.op]
    held = [memory.read(name, device) for device in members]
    check_movement(
        memory.xp, held, lambda arrays: move(_local_group(group), arrays), value=name, devices=members, where=task.where
    )
    results = move(group, [each.array for each in held])
    shape = next((array.shape for array in results if array is not None), ())
    for device, mine, array in zip(members, held, results, strict=True):
        undefined_shape = shape if task.call.op == "gather" else mine.array.shape
        whole = (
            PartialArray.all_undefined(memory.xp, undefined_shape, mine.array.dtype)
            if array is None
            else PartialArray(array)
        )
        memory.put(result, device, whole, where=task.where)


def _permute_between_meshes(task: Participants, members: Sequence[int], memory: ValueStore) -> list[int]:
    """Send the array of device k of one mesh to device k of the other; `members` are those of both."""
    (name,), (result,), kind = task.call.operands, task.call.results, task.call.types[0]
    received = dict.fromkeys(members, 0)
    for source, target in zip(task.positions, task.targets, strict=True):
        array = memory.read_defined(name, source, task.where)
        memory.put(result, target, PartialArray(array), where=task.where)
        received[target] = 0 if source == target else int(array.size) * kind.itemsize
    return list(received.values())


def _local_group(group: CollectiveGroup) -> CollectiveGroup:
    """Return the same group with a communicator of its own, so that moves of marks are not counted."""
    return replace(group, communicator=Communicator(group.communicator.members))


def _run_reduction(
    task: Participants, group: CollectiveGroup, members: Sequence[int], *, memory: ValueStore, reducers: Reducers
) -> None:
    """Combine terms, converted to the result's element type first. Every element of every term is read."""
    (name,), (result,), kind = task.call.operands[:1], task.call.results, task.call.types[0]
    dtype = memory.dtype(kind)
    terms = [memory.read_defined(name, device, task.where).astype(dtype) for device in members]
    group.check_shapes(terms)
    with np.errstate(all="ignore"):
        results = REDUCTIONS[task.call.op](group, terms, _reducer(task, memory, reducers))
    for device, term, array in zip(members, terms, results, strict=True):
        whole = (
            PartialArray.all_undefined(memory.xp, term.shape, dtype)
            if array is None
            else PartialArray(array.astype(dtype, copy=False))
        )
        memory.put(result, device, whole, where=task.where)


def _reducer(task: Participants, memory: ValueStore, reducers: Reducers) -> Reducer:
    kind, name = task.attrs["reduction"], task.attrs["reducer"]
    if kind != GENERIC:
        return Reducer.of(memory.xp, Reduction(kind))
    if name not in reducers:
        raise RunFailed("no function for a generic reduction", where=task.where, got=name, wanted=sorted(reducers))
    return Reducer(reducers[name])


def _update_halo(task: Participants, group: CollectiveGroup, members: Sequence[int], *, memory: ValueStore) -> None:
    xp, source, (result,) = memory.xp, task.call.operands[0], task.call.results
    held = [memory.read(source, device) for device in members]
    rank = held[0].array.ndim
    lists = [*group.attrs["split_axes"], *[()] * (rank - len(group.attrs["split_axes"]))]
    old, new = (
        _check_halos(per_dim(lists, group.attrs[f"{end}_halo_sizes"], rank)) for end in ("source", "destination")
    )
    grid = [int(np.prod([task.mesh.shape[axis] for axis in axes], dtype=int)) for axes in lists]
    into = [
        _destination(task, memory, device, source=mine, old=old, new=new)
        for device, mine in zip(members, held, strict=True)
    ]

    def move(wire: Communicator, arrays: Sequence[Array], targets: Sequence[Array]) -> list[Array]:
        return update_halos(wire, arrays, targets, grid=grid, old=old, new=new, where=task.where)

    def marked(arrays: list[Array]) -> list[Array]:
        return move(Communicator(len(members)), arrays, [xp.full(each.array.shape, -1) for each in into])

    check_movement(xp, held, marked, value=source, devices=members, where=task.where)
    filled = move(group.communicator, [each.array for each in held], [each.array for each in into])
    clean = [xp.zeros(each.array.shape, bool) for each in held]
    masks = move(Communicator(len(members)), clean, [each.mask(xp) for each in into])
    for device, array, mask in zip(members, filled, masks, strict=True):
        memory.put(result, device, PartialArray.of(xp, array, mask), where=task.where)


def _check_halos(halos: Sequence[tuple[int | None, int | None]]) -> list[tuple[int, int]]:
    return [(before or 0, after or 0) for before, after in halos]


def _destination(
    task: Participants,
    memory: ValueStore,
    device: int,
    *,
    source: PartialArray,
    old: Sequence[tuple[int, int]],
    new: Sequence[tuple[int, int]],
) -> PartialArray:
    """Return the operand given as destination, or the source where halos keep their sizes, or an undefined one."""
    for dim, (size, halo) in enumerate(zip(source.array.shape, old, strict=True)):
        if size < sum(halo):
            what = f"source halo of dim {dim} is larger than the shard on device {device}"
            raise RunFailed(what, where=task.where, got=list(halo), wanted=f"at most {size} in all")
    sizes = [size - sum(before) + sum(after) for size, before, after in zip(source.array.shape, old, new, strict=True)]
    tensors = len(task.call.operands) - count_dynamic_numbers(op_def_of(task.call), task.attrs)
    into = memory.read(task.call.operands[1], device) if tensors > 1 else source if old == new else None
    if into is None:
        return PartialArray.all_undefined(memory.xp, tuple(sizes), source.array.dtype)
    if list(into.array.shape) != sizes:
        got = into.array.shape
        raise RunFailed(f"destination on device {device}", where=task.where, got=got, wanted=tuple(sizes))
    return into


def send(task: Participants, device: int, memory: ValueStore, *, mail: Mailbox) -> None:
    """Send a message. The result is the operand."""
    name, (result,) = task.call.operands[0], task.call.results
    array = memory.read_defined(name, device, task.where)
    target = _group_device(task, memory, device, key="destination")
    assert target is not None
    mail.send(DeviceMessage(device, target, array, task.where))
    memory.put(result, device, PartialArray(array), where=task.where)


def receive(task: Participants, device: int, memory: ValueStore, *, mail: Mailbox) -> int | None:
    """Return the bytes received, None while there is no message.

    Raises RunFailed where the message is not of the declared type, or could be another sender's.
    """
    (result,), kind = task.call.results, task.call.types[0]
    message = mail.receive(device, _group_device(task, memory, device, key="source"), task.where)
    if message is None:
        return None
    wanted = memory.read(task.call.operands[0], device).array
    if message.array.shape != wanted.shape or message.array.dtype != wanted.dtype:
        raise RunFailed(
            f"message from device {message.source} ({message.where}) does not fit on device {device}",
            where=task.where,
            got=f"{message.array.dtype}{list(message.array.shape)}",
            wanted=f"{wanted.dtype}{list(wanted.shape)}",
        )
    memory.put(result, device, PartialArray(message.array), where=task.where)
    return 0 if message.source == device else int(message.array.size) * kind.itemsize


def _group_device(task: Participants, memory: ValueStore, device: int, *, key: str) -> int | None:
    """Return the device that an in-group index of `device` names; None for any."""
    index = resolve_attributes(task, memory, device)[key]
    if index is None:
        return None
    sizes = [task.mesh.shape[axis] for axis in task.axes]
    return task.groups[device][int(np.ravel_multi_index(tuple(index), sizes)) if sizes else 0]


def describe_wait(task: Participants, device: int, memory: ValueStore) -> str:
    source = _group_device(task, memory, device, key="source")
    return "any device" if source is None else f"device {source}"


def answer_query(task: Participants, device: int, memory: ValueStore) -> tuple[int, ...]:
    """Return the answer to a query on a device."""
    mesh, attrs, place = task.mesh, resolve_attributes(task, memory, device), task.positions[device]
    match task.call.op:
        case "mesh_shape":
            return tuple(size or 0 for size in mesh_sizes(mesh, attrs["axes"]))
        case "process_multi_index":
            return multi_index(mesh, place, attrs["axes"])
        case "process_linear_index":
            return (place,)
        case "idx":
            return multi_index(mesh, place, (attrs["axis"],))
        case "size":
            return (mesh.shape[attrs["axis"]],)
        case "constant":
            return (attrs["value"],)
        case _:
            return shard_sizes(mesh, attrs["sharding"], tuple(attrs["shape"]), device=attrs["device"])
