"""An estimate of the peak memory of a layout, without its program: whether it is worth writing that.

A value is held from its op through its last reader, graph inputs throughout: as it is computed, or as its first reader
reads it where that takes fewer bytes (`planner.ir.execution_order`). An op also holds what it reads in another sharding
than that. Reshards on the way, and results that leave in another sharding, are not counted, so that the estimate can be
too low as well as too high.
"""

from __future__ import annotations

from collections import Counter

from planner.choose.cost import CostModel
from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph, Op
from planner.ir.indexing import Option
from planner.ir.sharding import Sharding
from planner.judge.standard_layouts import Baseline

Shard = tuple[Sharding, int]
"""A sharding, and the bytes of a device's shard."""
OpShards = tuple[tuple[Shard, ...], tuple[Shard, ...]]
"""The operands of an op as it reads them, and its results as it computes them."""


def estimate_peak_bytes(graph: Graph, model: CostModel, layout: Baseline) -> int:
    """Return about how many bytes a device holds at the peak of a layout."""
    inputs = {entry.id: layout.inputs[entry.id] for entry in graph.inputs}
    held: dict[str, Shard] = {value: (at, model.shard_bytes(graph.types[value], at)) for value, at in inputs.items()}
    live = peak = sum(size for _, size in held.values())
    ends, freed, of_ops = _find_ends(graph), Counter[int](), _list_shards(graph, model, layout)
    wanted: dict[str, Shard] = {}
    for op, (read, _) in reversed(list(zip(graph.ops, of_ops, strict=True))):
        wanted |= dict(zip(op.inputs, read, strict=True))
    for place, (op, (read, made)) in enumerate(zip(graph.ops, of_ops, strict=True)):
        copies = sum(shard[1] for value, shard in zip(op.inputs, read, strict=True) if held[value][0] != shard[0])
        peak = max(peak, live + copies + sum(size for _, size in made))
        for value, shard in zip(op.values, made, strict=True):
            held[value] = min(shard, wanted.get(value, shard), key=lambda each: each[1])
            live += held[value][1]
            freed[ends.get(value, place)] += held[value][1]
        live -= freed[place]
    return peak


def _find_ends(graph: Graph) -> dict[str, int]:
    """Return the position of the last op that reads each value; that after the last where the graph returns it."""
    count = len(graph.ops)
    return {
        value: max(count if reader.op is None else reader.op for reader in readers)
        for value, readers in find_readers(graph).items()
    }


def _list_shards(graph: Graph, model: CostModel, layout: Baseline) -> list[OpShards]:
    """Return what every op reads and computes. Ops of one rule and option are looked at once."""
    known: dict[tuple[int, Option], OpShards] = {}
    listed = []
    for op in graph.ops:
        key = id(op.rule), layout.options[op.id]
        if key not in known:
            known[key] = _find_shards(op, layout.options[op.id], graph=graph, model=model)
        listed.append(known[key])
    return listed


def _find_shards(op: Op, option: Option, *, graph: Graph, model: CostModel) -> OpShards:
    read = [op.rule.read_sharding(operand, option, model.mesh) for operand in range(len(op.inputs))]
    made = [op.rule.result_sharding(result, option) for result in range(len(op.results))]
    kinds = [graph.types[value] for value in op.inputs]
    return (
        tuple((at, model.shard_bytes(kind, at)) for kind, at in zip(kinds, read, strict=True)),
        tuple((at, model.shard_bytes(kind, at)) for kind, at in zip(op.results, made, strict=True)),
    )
