"""The order in which a program does things, before it is known what it has to do.

A value read more than once is first *shared*: brought once into the sharding from which its readers start
(the hub of the choice problem), right before its first reader. Every operand is then *read*: brought into the
sharding its op wants. Then the op *runs*. Graph outputs are read last. Both the choice problem (its moments)
and the materialised program follow this one list, so that what is chosen is what is built.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from planner.model.graph import Graph


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


def readers(graph: Graph) -> dict[str, list[Reader]]:
    """Who reads every value, in program order; values nobody reads are absent."""
    found: dict[str, list[Reader]] = defaultdict(list)
    for position, op in enumerate(graph.ops):
        for operand, value in enumerate(op.inputs):
            found[value].append(Reader(position, operand))
    for number, value in enumerate(graph.outputs):
        found[value].append(Reader(None, number))
    return dict(found)


@lru_cache(maxsize=8)
def steps(graph: Graph) -> tuple[Step, ...]:
    """Every step in order."""
    by_value = readers(graph)
    listed: list[Step] = []
    shared: set[str] = set()

    def read(value: str, reader: Reader) -> None:
        if len(by_value[value]) > 1 and value not in shared:
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
