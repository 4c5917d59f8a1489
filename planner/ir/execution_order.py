"""The order in which a program does things, independent of which shardings are chosen.

A value that is read more than once is first *shared*: brought once into the sharding from which its readers start
(the shared copy of the choice problem), right before its first reader. Then every operand is *read*: brought into the
sharding that its op wants. Then the op is *executed*. Graph outputs are read last. The choice problem (its time steps)
and the materialised program follow this one list, so that what is built is what was chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
class Read:
    """The step that brings a value into the sharding that its reader wants."""

    value: str
    reader: Reader


@dataclass(frozen=True, slots=True)
class Execute:
    """The step that runs the op at a position."""

    op: int


Step = Share | Read | Execute


def find_readers(graph: Graph) -> dict[str, list[Reader]]:
    """Return the readers of every value, in program order. Values that nobody reads are absent."""
    readers: dict[str, list[Reader]] = defaultdict(list)
    for position, op in enumerate(graph.ops):
        for operand, value in enumerate(op.inputs):
            readers[value].append(Reader(position, operand))
    for number, value in enumerate(graph.outputs):
        readers[value].append(Reader(None, number))
    return dict(readers)


@lru_cache(maxsize=8)
def order_steps(graph: Graph, shared_too: frozenset[str] = frozenset()) -> tuple[Step, ...]:
    """List every step in order.

    Values in `shared_too` are shared even where only one reader reads them.
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
    for number, value in enumerate(graph.outputs):
        read(value, Reader(None, number))
    return tuple(steps)


def remaining_steps(listed: Sequence[Step], graph: Graph, left: Graph) -> Iterator[Step]:
    """List the steps of `left`, which is `graph` without some of its recomputed ops (`drop_clones`).

    `listed` are the steps of `graph`. What read a dropped copy reads the value that it copied, which was shared before.
    """
    position_left = {op.id: position for position, op in enumerate(left.ops)}
    for step in listed:
        match step:
            case Share(value) if value in left.types:
                yield step
            case Read(_, Reader(None, number) as reader):
                yield Read(left.outputs[number], reader)
            case Read(_, Reader(int(position), operand)) if (op := graph.ops[position].id) in position_left:
                yield Read(left.ops[position_left[op]].inputs[operand], Reader(position_left[op], operand))
            case Execute(position) if (op := graph.ops[position].id) in position_left:
                yield Execute(position_left[op])
