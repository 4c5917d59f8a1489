"""Lower bounds on time and memory of any plan on a number of devices, from the graph alone.

Time    n devices together do at least the unsharded work of each op, so one of them does an n-th of its flops and of
        the bytes it reads and writes, at the best efficiency of all local shapes (`planner.choose.op_prices`), and
        every op is launched. Collectives are not counted. Ops before the update do this once for each micro-batch.
Memory  n devices together hold at least one whole copy of each live value, so one of them holds an n-th of their bytes.
        Live are all graph inputs and accumulators and, without recomputation, the values that are computed and still
        read later; with recomputation, only the operands and results of the current op.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from planner.choose.cost import PICO, CostModel, price_key
from planner.choose.hardware import Hardware
from planner.choose.op_prices import OpPricing
from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph, Op, TensorType
from planner.ir.mesh import Mesh
from planner.ops import OPS


class Floor(NamedTuple):
    """Lower bounds of any plan: seconds of a step, and peak bytes of some device."""

    step_s: float
    peak_bytes: int


@lru_cache(maxsize=1024)
def min_step_s(graph: Graph, hardware: Hardware, devices: int) -> float:
    """Return a lower bound on the seconds of a step, with a margin for the cost model's rounding to picoseconds."""
    return _sum_least(graph, [graph.count_runs(op) for op in graph.ops], hardware, devices=devices)


@lru_cache(maxsize=1024)
def min_passes_s(graph: Graph, hardware: Hardware, devices: int) -> float:
    """Return a lower bound on the seconds of the passes of one micro-batch, without the update."""
    return _sum_least(graph, [int(op.phase != "update") for op in graph.ops], hardware, devices=devices)


def _sum_least(graph: Graph, runs: list[int], hardware: Hardware, *, devices: int) -> float:
    """Return the least seconds of all ops of a graph, each run so many times."""
    return sum(count * each for count, each in zip(runs, list_least_s(graph, hardware, devices), strict=True))


@lru_cache(maxsize=32)
def list_least_s(graph: Graph, hardware: Hardware, devices: int) -> tuple[float, ...]:
    """Return a lower bound on the seconds of each op, with a margin for the cost model's rounding to picoseconds."""
    alone, known = _price_alone(hardware)
    least = [0.0] * len(graph.ops)
    for work, numbers in _group_equal_ops(graph).items():
        if (work, devices) not in known:
            op = graph.ops[numbers[0]]
            operands = tuple(graph.types[value] for value in op.inputs)
            known[work, devices] = _min_op_s(op, operands, alone, devices=devices) - PICO
        for number in numbers:
            least[number] = known[work, devices]
    return tuple(least)


@lru_cache(maxsize=8)
def _price_alone(hardware: Hardware) -> tuple[CostModel, dict[tuple[object, int], float]]:
    """Return the prices of one device, and the bounds of work on numbers of devices, which graphs share."""
    return CostModel(Mesh.parse("1"), hardware), {}


@lru_cache(maxsize=32)
def _group_equal_ops(graph: Graph) -> dict[object, list[int]]:
    """Return the numbers of ops by their work: equal ones, such as those of repeated layers, are bounded once."""
    groups: dict[object, list[int]] = defaultdict(list)
    for number, op in enumerate(graph.ops):
        operands = tuple(graph.types[value] for value in op.inputs)
        groups[price_key(op), op.rule.pattern, op.rule.shapes, op.results, operands, op.accumulates].append(number)
    return groups


def _min_op_s(op: Op, operands: tuple[TensorType, ...], alone: CostModel, *, devices: int) -> float:
    row = OPS.get(op.op)
    if row and row.is_view:
        return 0.0
    whole = alone.op_work(op, operands, ((),) * len(op.rule.loops))
    return OpPricing.of(op, alone.hardware).least_s(whole, devices)


def min_memory_bytes(graph: Graph, devices: int, recompute: bool) -> int:
    """Return a lower bound on the peak bytes of some device; `recompute`: values may be recomputed."""
    return -(-_max_live_bytes(graph, recompute) // devices)


@lru_cache(maxsize=32)
def _max_live_bytes(graph: Graph, recompute: bool) -> int:
    """Return the most bytes of one copy of all live values."""
    return max(_live_bytes(graph, recompute))


def _live_bytes(graph: Graph, recompute: bool) -> Iterator[int]:
    """Yield the bytes of one copy of all live values, while each op runs and at the end."""
    inputs = sum(entry.type.bytes for entry in graph.inputs)
    outside = {entry.id for entry in graph.inputs}
    last = {
        value: max(len(graph.ops) if r.op is None else r.op for r in who) for value, who in find_readers(graph).items()
    }
    sums = {value: graph.types[value].bytes for op in graph.ops if op.accumulates for value in op.values}
    live, held, summed = dict(sums), sum(sums.values()), sum(sums.values())
    for position, op in enumerate(graph.ops):
        for value, kind in zip(op.values, op.results, strict=True):
            held += 0 if value in live else kind.bytes
            live.setdefault(value, kind.bytes)
        near = {*op.inputs, *op.values} - outside
        around = summed + sum(graph.types[value].bytes for value in near if value not in sums or value not in live)
        yield inputs + (around if recompute else held)
        for value in near & live.keys():
            if last.get(value, position) <= position:
                held -= live[value]
                summed -= live.pop(value) if value in sums else 0
                live.pop(value, None)
    yield inputs + sum(graph.types[value].bytes for value in set(graph.outputs) - outside)
