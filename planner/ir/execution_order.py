"""The order in which a program does things, independent of which shardings are chosen.

A value that is read more than once is first *shared*: brought once into the sharding from which its readers start
(the shared copy of the choice problem), right before its first reader. Then every operand is *read*: brought into the
sharding that its op wants. Then the op is *executed*. Graph outputs are read last. The choice problem (its time steps)
and the materialised program follow this one list, so that what is built is what was chosen.

The first reshard of a value (to its shared copy, or to what its only reader wants) costs the same anywhere between its
op and its first reader, but not in memory: between the two the value takes the bytes of its source before the reshard,
and those of its target after it. Where an op stands in between, the list has a step right after the value's op to
*shrink* it: the reshard is done there where its target takes fewer bytes than its source (`shrinks`), else where the
value is shared or read. So a partial gradient that the optimizer reads in shards is reduced and scattered at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Reader:
    """Operand number `operand` of the op at position `op`, or output number `operand` of the graph where `op` is
    None.
    """

    op: int | None
    operand: int


@dataclass(frozen=True, slots=True)
class Share:
    """The step that brings a value into the sharding from which its readers start."""

    value: str


@dataclass(frozen=True, slots=True)
class Shrink:
    """The step right after a value's op that does the first reshard of the value where this frees memory."""

    value: str


@dataclass(frozen=True, slots=True)
class Read:
    """The step that brings a value into the sharding that its reader wants."""

    value: str
    reader: Reader


@dataclass(frozen=True, slots=True)
class Execute:
    """The step that runs the op at a position."""

    op: int


Step = Share | Shrink | Read | Execute


def shrinks(source: ArrayLike, target: ArrayLike) -> NDArray[np.bool_]:
    """Return whether a reshard between shards of these sizes is done right after the op that computes the value."""
    return np.asarray(np.less(target, source))


@lru_cache(maxsize=8)
def find_readers(graph: Graph) -> Mapping[str, Sequence[Reader]]:
    """Return the readers of every value, in program order. Values that nobody reads are absent."""
    readers: dict[str, list[Reader]] = defaultdict(list)
    for position, op in enumerate(graph.ops):
        for operand, value in enumerate(op.inputs):
            readers[value].append(Reader(position, operand))
    for number, value in enumerate(graph.outputs):
        readers[value].append(Reader(None, number))
    return MappingProxyType(dict(readers))


@lru_cache(maxsize=8)
def order_steps(graph: Graph, shared_too: frozenset[str] = frozenset()) -> tuple[Step, ...]:
    """List every step in order.

    Values in `shared_too` are shared even where only one reader reads them, and always right before they are read.
    """
    by_value = find_readers(graph)
    steps: list[Step] = []
    shared: set[str] = set()

    def read(value: str, reader: Reader) -> None:
        if value not in shared and (len(by_value[value]) > 1 or value in shared_too):
            shared.add(value)
            steps.append(Share(value))
        steps.append(Read(value, reader))

    for position, op in enumerate(graph.ops):
        for operand, value in enumerate(op.inputs):
            read(value, Reader(position, operand))
        steps.append(Execute(position))
        own = (value for value in op.values if value not in shared_too)
        steps += [Shrink(value) for value in own if _may_shrink(graph, position, by_value.get(value, []))]
    for number, value in enumerate(graph.outputs):
        read(value, Reader(None, number))
    return tuple(steps)


def _may_shrink(graph: Graph, place: int, readers: Sequence[Reader]) -> bool:
    """Return whether another op stands between the op at a position and the first of the readers of its result.

    A reshard never moves to another pass of a micro-batch, which is done more often or leaves other values in flight.
    """
    ends = [len(graph.ops) if reader.op is None else reader.op for reader in readers]
    if graph.ops[place].accumulates or not ends or min(ends) <= place + 1:
        return False
    passes = {pass_of(graph, at) for at in (place, *ends)}
    return graph.microbatches == 1 or len(passes) == 1


def pass_of(graph: Graph, place: int) -> tuple[str, bool]:
    """Return the phase of the op at a position, and whether it runs in the late part; past the last op: the update."""
    op = graph.ops[place] if place < len(graph.ops) else None
    return ("update", False) if op is None else (op.phase, op.id in graph.in_flight.late)


def remaining_steps(listed: Sequence[Step], graph: Graph, left: Graph) -> Iterator[Step]:
    """List the steps of `left`, which is `graph` without some of its recomputed ops (`drop_clones`).

    `listed` are the steps of `graph`. What read a dropped copy reads the value that it copied, which was shared before.
    """
    position_left = {op.id: position for position, op in enumerate(left.ops)}
    for step in listed:
        match step:
            case Share(value) | Shrink(value) if value in left.types:
                yield step
            case Read(_, Reader(None, number) as reader):
                yield Read(left.outputs[number], reader)
            case Read(_, Reader(int(position), operand)) if (op := graph.ops[position].id) in position_left:
                yield Read(left.ops[position_left[op]].inputs[operand], Reader(position_left[op], operand))
            case Execute(position) if (op := graph.ops[position].id) in position_left:
                yield Execute(position_left[op])
