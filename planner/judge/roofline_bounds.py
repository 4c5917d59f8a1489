"""What no plan on so many devices can do better, read off the graph alone.

Time    n devices together do at least the unsharded work of every op, so one of them does an n-th of its flops and of
        the bytes it reads and writes; more work never takes less time (`planner.choose.hardware`), and every op is
        launched. Collectives are not counted.
Memory  n devices together hold at least one whole copy of every value that is there, so one of them holds an n-th of
        their bytes: of all graph inputs and, where nothing is made again, of what is made already and read later;
        where something may be, of what an op reads and makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from planner.choose.cost import PICO, CostModel, op_variant
from planner.choose.hardware import Hardware
from planner.choose.hardware.efficiency import work_class
from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph, Op
from planner.ir.mesh import Mesh
from planner.ops import OPS


class Floor(NamedTuple):
    """Seconds of a step, and bytes of some device, that no plan stays below."""

    step_s: float
    peak_bytes: int


def min_step_s(graph: Graph, hardware: Hardware, devices: int) -> float:
    """Seconds that no plan of a graph on so many devices stays below; the sum of picoseconds rounded up or down."""
    alone = CostModel(Mesh.parse("1"), hardware)
    return sum(_min_op_s(graph, op, alone, devices=devices) for op in graph.ops) - len(graph.ops) * PICO


def _min_op_s(graph: Graph, op: Op, alone: CostModel, *, devices: int) -> float:
    row = OPS.get(op.op)
    if row and row.is_view:
        return 0.0
    operands = tuple(graph.types[value] for value in op.inputs)
    flops, moved = alone.op_work(op, operands, ((),) * len(op.rule.loops))
    kind = work_class(op) if alone.hardware.efficiency else None
    return alone.hardware.op_s(op_variant(op), op.results[0].dtype, flops / devices, moved=moved / devices, kind=kind)


def min_memory_bytes(graph: Graph, devices: int, again: bool) -> int:
    """Bytes that some device holds at some moment of any plan; `again`: values may be made again."""
    return -(-max(_live_bytes(graph, again)) // devices)


def _live_bytes(graph: Graph, again: bool) -> Iterator[int]:
    """Bytes of one copy of all that is there, while each op runs and at the end."""
    inputs = sum(entry.type.bytes for entry in graph.inputs)
    outside = {entry.id for entry in graph.inputs}
    last = {
        value: max(len(graph.ops) if r.op is None else r.op for r in who) for value, who in find_readers(graph).items()
    }
    live: dict[str, int] = {}
    for position, op in enumerate(graph.ops):
        made = dict(zip(op.values, (kind.bytes for kind in op.results), strict=True))
        live |= made
        around = {value: graph.types[value].bytes for value in {*op.inputs, *op.values} - outside}
        yield inputs + sum((around if again else live).values())
        for value in {*op.inputs, *op.values} & live.keys():
            if last.get(value, position) <= position:
                del live[value]
    yield inputs + sum(graph.types[value].bytes for value in set(graph.outputs) - outside)
