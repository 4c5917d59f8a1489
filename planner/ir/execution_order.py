"""The order in which a program does things, before it is known what it has to do.

A value read more than once is first *shared*: brought once into the sharding from which its readers start
(the hub of the choice problem), right before its first reader. Every operand is then *read*: brought into the
sharding its op wants. Then the op *runs*. Graph outputs are read last. Both the choice problem (its moments)
and the materialised program follow this one list, so that what is chosen is what is built.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from planner.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Reader:
    """Operand `operand` of the op at position `op`, or (op None) output number `operand` of the graph."""

    op: int | None
    operand: int


@dataclass(frozen=True, slots=True)
class Share:
    """Bring a value into the sharding from which its readers start."""

    value: str


@dataclass(frozen=True, slots=True)
class Read:
    """Bring a value into the sharding its reader wants."""

    value: str
    reader: Reader


@dataclass(frozen=True, slots=True)
class Execute:
    """Run the op at a position."""

    op: int


Step = Share | Read | Execute


def find_readers(graph: Graph) -> dict[str, list[Reader]]:
    """Who reads every value, in program order; values nobody reads are absent."""
    found: dict[str, list[Reader]] = defaultdict(list)
    for position, op in enumerate(graph.ops):
        for operand, value in enumerate(op.inputs):
            found[value].append(Reader(position, operand))
    for number, value in enumerate(graph.outputs):
        found[value].append(Reader(None, number))
    return dict(found)


@lru_cache(maxsize=8)
def order_steps(graph: Graph, shared_too: frozenset[str] = frozenset()) -> tuple[Step, ...]:
    """Every step in order; `shared_too` are shared however few read them."""
    by_value = find_readers(graph)
    listed: list[Step] = []
    shared: set[str] = set()

    def read(value: str, reader: Reader) -> None:
        if value not in shared and (len(by_value[value]) > 1 or value in shared_too):
            shared.add(value)
            listed.append(Share(value))
        listed.append(Read(value, reader))

    for position, op in enumerate(graph.ops):
        for operand, value in enumerate(op.inputs):
            read(value, Reader(position, operand))
        listed.append(Execute(position))
    for number, value in enumerate(graph.outputs):
        read(value, Reader(None, number))
    return tuple(listed)


def remaining_steps(listed: Sequence[Step], graph: Graph, left: Graph) -> Iterator[Step]:
    """Of the steps of a graph those of what is left of it without some of its copies (`again.without`): what read
    such a copy reads the value it copies, which was shared before."""
    place = {op.id: position for position, op in enumerate(left.ops)}
    for step in listed:
        match step:
            case Share(value) if value in left.types:
                yield step
            case Read(_, Reader(None, number) as reader):
                yield Read(left.outputs[number], reader)
            case Read(_, Reader(int(position), operand)) if (op := graph.ops[position].id) in place:
                yield Read(left.ops[place[op]].inputs[operand], Reader(place[op], operand))
            case Execute(position) if (op := graph.ops[position].id) in place:
                yield Execute(place[op])
