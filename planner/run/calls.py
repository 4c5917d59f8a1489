"""Calls of the dialect on the devices' local tensors: group collectives, halos, point to point, queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.errors import InvalidProgram, RunFailed
from planner.model.sharding import Reduction
from planner.model.spmd.attributes import GENERIC
from planner.model.spmd.fold import mesh_sizes, multi_index, shard_sizes
from planner.model.spmd.halo import per_dim
from planner.model.spmd.row import DYNAMIC
from planner.model.spmd.verify import dynamic_numbers, row_of
from planner.run.fabric import Wire
from planner.run.group_ops import MOVEMENTS, REDUCTIONS, Group
from planner.run.halo import halos_updated
from planner.run.mail import Mail, Message
from planner.run.memory import Memory
from planner.run.tasks import Task
from planner.run.transfer import Reducer
from planner.run.undefined import Held, check_movement

Array = Any
Reducers = Mapping[str, Callable[[Array, Array], Array]]


def numbers(task: Task, memory: Memory, device: int) -> dict[str, Any]:
    """The attributes with every dynamic number read from its operand, and checked as a static one is."""
    row, call, attrs = row_of(task.call), task.call, dict(task.attrs)
    count = dynamic_numbers(row, attrs)
    if not count:
        return attrs
    values = iter([memory.number(name, device, task.where) for name in call.operands[-count:]])
    for key in row.dynamic:
        attrs[key] = _filled(attrs[key], values)
    assert task.signature is not None
    known = replace(task.signature, attrs=attrs)
    try:
        for key in row.dynamic:
            row.attrs[key](known, key, attrs[key])
    except InvalidProgram as error:
        raise RunFailed(
            f"{error.what}, on device {device}", where=error.where, got=error.got, wanted=error.wanted
        ) from None
    return attrs


def _filled(value: Any, values: Iterator[int]) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(next(values) if each is DYNAMIC else each for each in value)
    return next(values, None) if value is DYNAMIC else value


def run_group(task: Task, members: Sequence[int], memory: Memory, reducers: Reducers) -> list[int]:
    """Run a collective over one group; bytes every member received."""
    if task.attrs.get("target") is not None:
        return _between_meshes(task, members, memory)
    group = _group(task, members, memory)
    if task.call.op == "update_halo":
        _update_halo(task, group, members, memory)
    elif task.call.op in REDUCTIONS:
        _reduce(task, group, members, memory, reducers)
    else:
        _move(task, group, members, memory)
    size = task.call.types[0].itemsize
    return [count * size for count in group.wire.received]


def _group(task: Task, members: Sequence[int], memory: Memory) -> Group:
    attrs = [numbers(task, memory, device) for device in members]
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
    return Group(memory.xp, Wire(len(members)), task.axes, sizes, attrs[0], task.where)


def _move(task: Task, group: Group, members: Sequence[int], memory: Memory) -> None:
    name, (result,), move = task.call.operands[0], task.call.results, MOVEMENTS[task.call.op]
    held = [memory.read(name, device) for device in members]
    check_movement(memory.xp, held, lambda arrays: move(_silent(group), arrays), name, members, task.where)
    made = move(group, [each.array for each in held])
    shape = next((array.shape for array in made if array is not None), ())
    for device, mine, array in zip(members, held, made, strict=True):
        lacking = shape if task.call.op == "gather" else mine.array.shape
        whole = Held.nothing(memory.xp, lacking, mine.array.dtype) if array is None else Held(array)
        memory.keep(result, device, whole, task.where)


def _between_meshes(task: Task, members: Sequence[int], memory: Memory) -> list[int]:
    """The array of device k of one mesh goes to device k of the other; `members` are those of both."""
    (name,), (result,), kind = task.call.operands, task.call.results, task.call.types[0]
    received = dict.fromkeys(members, 0)
    for source, target in zip(task.positions, task.targets, strict=True):
        array = memory.defined(name, source, task.where)
        memory.keep(result, target, Held(array), task.where)
        received[target] = 0 if source == target else int(array.size) * kind.itemsize
    return list(received.values())


def _silent(group: Group) -> Group:
    """The same group, with a wire of its own: what runs on marks is not sent."""
    return replace(group, wire=Wire(group.wire.members))


def _reduce(task: Task, group: Group, members: Sequence[int], memory: Memory, reducers: Reducers) -> None:
    """Terms are converted to the result's element type first; every element of every term is read."""
    (name,), (result,), kind = task.call.operands[:1], task.call.results, task.call.types[0]
    dtype = memory.dtype(kind)
    terms = [memory.defined(name, device, task.where).astype(dtype) for device in members]
    group.agree(terms)
    with np.errstate(all="ignore"):
        made = REDUCTIONS[task.call.op](group, _reducer(task, memory, reducers), terms)
    for device, term, array in zip(members, terms, made, strict=True):
        whole = Held.nothing(memory.xp, term.shape, dtype) if array is None else Held(array.astype(dtype, copy=False))
        memory.keep(result, device, whole, task.where)


def _reducer(task: Task, memory: Memory, reducers: Reducers) -> Reducer:
    kind, name = task.attrs["reduction"], task.attrs["reducer"]
    if kind != GENERIC:
        return Reducer.of(memory.xp, Reduction(kind))
    if name not in reducers:
        raise RunFailed("no function for a generic reduction", where=task.where, got=name, wanted=sorted(reducers))
    return Reducer(reducers[name])


def _update_halo(task: Task, group: Group, members: Sequence[int], memory: Memory) -> None:
    xp, source, (result,) = memory.xp, task.call.operands[0], task.call.results
    held = [memory.read(source, device) for device in members]
    rank = held[0].array.ndim
    lists = [*group.attrs["split_axes"], *[()] * (rank - len(group.attrs["split_axes"]))]
    old, new = (_known(per_dim(lists, group.attrs[f"{end}_halo_sizes"], rank)) for end in ("source", "destination"))
    grid = [int(np.prod([task.mesh.shape[axis] for axis in axes], dtype=int)) for axes in lists]
    into = [_destination(task, memory, device, mine, old, new) for device, mine in zip(members, held, strict=True)]

    def move(wire: Wire, arrays: Sequence[Array], targets: Sequence[Array]) -> list[Array]:
        return halos_updated(wire, arrays, targets, grid, old, new, task.where)

    def marked(arrays: list[Array]) -> list[Array]:
        return move(Wire(len(members)), arrays, [xp.full(each.array.shape, -1) for each in into])

    check_movement(xp, held, marked, source, members, task.where)
    made = move(group.wire, [each.array for each in held], [each.array for each in into])
    clean = [xp.zeros(each.array.shape, bool) for each in held]
    masks = move(Wire(len(members)), clean, [each.mask(xp) for each in into])
    for device, array, mask in zip(members, made, masks, strict=True):
        memory.keep(result, device, Held.of(xp, array, mask), task.where)


def _known(halos: Sequence[tuple[int | None, int | None]]) -> list[tuple[int, int]]:
    return [(before or 0, after or 0) for before, after in halos]


def _destination(
    task: Task,
    memory: Memory,
    device: int,
    source: Held,
    old: Sequence[tuple[int, int]],
    new: Sequence[tuple[int, int]],
) -> Held:
    """The operand given for it; else the source itself where halos keep their sizes; else undefined."""
    for dim, (size, halo) in enumerate(zip(source.array.shape, old, strict=True)):
        if size < sum(halo):
            what = f"source halo of dim {dim} is larger than the shard on device {device}"
            raise RunFailed(what, where=task.where, got=list(halo), wanted=f"at most {size} in all")
    sizes = [size - sum(before) + sum(after) for size, before, after in zip(source.array.shape, old, new, strict=True)]
    tensors = len(task.call.operands) - dynamic_numbers(row_of(task.call), task.attrs)
    into = memory.read(task.call.operands[1], device) if tensors > 1 else source if old == new else None
    if into is None:
        return Held.nothing(memory.xp, tuple(sizes), source.array.dtype)
    if list(into.array.shape) != sizes:
        got = into.array.shape
        raise RunFailed(f"destination on device {device}", where=task.where, got=got, wanted=tuple(sizes))
    return into


def send(task: Task, device: int, memory: Memory, mail: Mail) -> None:
    """The result is the operand."""
    name, (result,) = task.call.operands[0], task.call.results
    array = memory.defined(name, device, task.where)
    target = _in_group(task, memory, device, "destination")
    assert target is not None
    mail.post(Message(device, target, array, task.where))
    memory.keep(result, device, Held(array), task.where)


def receive(task: Task, device: int, memory: Memory, mail: Mail) -> int | None:
    """Bytes received, None while there is no message.

    Raises RunFailed when it is not of the declared type, or could be another's.
    """
    (result,), kind = task.call.results, task.call.types[0]
    message = mail.take(device, _in_group(task, memory, device, "source"), task.where)
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
    memory.keep(result, device, Held(message.array), task.where)
    return 0 if message.source == device else int(message.array.size) * kind.itemsize


def _in_group(task: Task, memory: Memory, device: int, key: str) -> int | None:
    """The device that an in-group index of `device` names; None for any."""
    index = numbers(task, memory, device)[key]
    if index is None:
        return None
    sizes = [task.mesh.shape[axis] for axis in task.axes]
    return task.groups[device][int(np.ravel_multi_index(tuple(index), sizes)) if sizes else 0]


def waits_for(task: Task, device: int, memory: Memory) -> str:
    source = _in_group(task, memory, device, "source")
    return "any device" if source is None else f"device {source}"


def query(task: Task, device: int, memory: Memory) -> tuple[int, ...]:
    """What a query answers on a device."""
    mesh, attrs, place = task.mesh, numbers(task, memory, device), task.positions[device]
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
        case _:
            return shard_sizes(mesh, attrs["sharding"], tuple(attrs["shape"]), attrs["device"])
