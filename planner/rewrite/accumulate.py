"""Micro-batches: a training step whose forward and backward passes run several times before one update.

The graph is one micro-batch. An op of the phase `update` runs once in a step, every other op once per micro-batch. A
value that a micro-batch computes from its data and that the update reads, such as a gradient, is *accumulated* (Huang
et al., "GPipe", NeurIPS 2019): an op `accumulate` follows, whose result is the sum over the micro-batches so far, in
the value's dtype. It is held from the start of the step, and the update reads it. So are floats of the backward pass
that do not depend on data: each micro-batch adds the gradient of its loss, also where this is the same for all, as
that of a bias of a loss that is a sum.

Accumulating is linear, so that an accumulator may hold partial sums, which are reduced once before the update, or be
reduced in every micro-batch and held whole or split, as ZeRO-2 does (Rajbhandari et al., "ZeRO", SC 2020). All of these
are options of one op.

Inputs of the kind `input` that a micro-batch reads are its data and differ in every micro-batch; the others are the
same throughout the step. What the forward pass computes without data is equal in all micro-batches, and the update
reads it as it is.
A graph output that a micro-batch computes is that of the last one.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from planner.errors import InvalidGraph, InvalidRequest
from planner.ir.dtypes import is_float
from planner.ir.graph import Graph, Op
from planner.ops import bind_op

ACCUMULATE, SUFFIX = "accumulate", "sum"
"""The op that accumulates, and what the id of its result ends in."""
MAX_MICROBATCHES = 1 << 20


def accumulate_gradients(graph: Graph, microbatches: int = 1, global_batch: int | None = None) -> Graph:
    """Return the graph of a step of several micro-batches, with an accumulator for each value that the update reads.

    One micro-batch is the graph itself. With `global_batch` there are as many as give so many sequences.

    Raises InvalidGraph for a graph without an update, one in which a micro-batch reads what the update computes or
    replaces state, and one whose update reads data that cannot be added. Raises InvalidRequest for a number of
    micro-batches that is no number from 1 to 2^20, and for a global batch that the graph's does not divide.
    """
    count = microbatches if global_batch is None else _count_microbatches(graph, global_batch)
    if not 1 <= count <= MAX_MICROBATCHES:
        raise InvalidRequest("micro-batches", got=count, wanted=f"1 to {MAX_MICROBATCHES}")
    if count == 1:
        return graph
    once = [op for op in graph.ops if op.phase == "update"]
    dependent = _data_dependent(graph)
    _check_phases(graph, once, dependent)
    added = {value for op in graph.ops if op.phase == "backward" for value in op.values if _is_float(graph, value)}
    read = {value for op in once for value in op.inputs} & (dependent | added) - graph.data
    sums = {value: _name_sum(graph, value) for op in graph.ops for value in op.values if value in read}
    repeated: list[Op] = []
    for op in graph.ops:
        if op.phase != "update":
            repeated += [op, *(_make_accumulator(op, v, sums[v]) for v in op.values if v in sums)]
    updates = [replace(op, inputs=tuple(sums.get(value, value) for value in op.inputs)) for op in once]
    users = {op.id for op in once}
    pins = (
        replace(pin, value=sums.get(pin.value, pin.value)) if pin.user in users else pin for pin in graph.annotations
    )
    return replace(graph, ops=(*repeated, *updates), annotations=tuple(pins), microbatches=count)


def _count_microbatches(graph: Graph, global_batch: int) -> int:
    batch = find_batch(graph)
    if global_batch < 1 or batch is None or global_batch % batch:
        got = f"{global_batch}, of which the graph has {'an unknown number' if batch is None else batch}"
        raise InvalidRequest("global batch", got=got, wanted="a multiple of the first dim of the graph's first input")
    return global_batch // batch


def find_batch(graph: Graph) -> int | None:
    """Return the sequences of a micro-batch: the first dim of the first input of integers, else of the first input.

    None where there is no such input.
    """
    given = [entry.type for entry in graph.inputs if entry.kind == "input" and entry.type.shape]
    listed = [kind for kind in given if kind.dtype in ("i32", "i64")] or given
    return listed[0].shape[0] if listed else None


def _data_dependent(graph: Graph) -> Set[str]:
    """Return the data of a micro-batch, and the values that its ops compute from them."""
    dependent = set(graph.data)
    for op in graph.ops:
        if op.phase != "update" and not dependent.isdisjoint(op.inputs):
            dependent.update(op.values)
    return dependent


def _check_phases(graph: Graph, once: list[Op], dependent: Set[str]) -> None:
    where, updated = f"graph {graph.name!r}", {value for op in once for value in op.values}
    if not updated:
        what = "micro-batches of a graph without an update"
        raise InvalidGraph(what, where=where, got="no node of the phase update", wanted="a training step")
    for op in graph.ops:
        if op.phase != "update" and (late := updated.intersection(op.inputs)):
            what, wanted = "a micro-batch reads what the update computes", "values of forward and backward nodes"
            raise InvalidGraph(what, where=f"node {op.id!r}", got=min(late), wanted=wanted)
    for entry in graph.inputs:
        if entry.next in dependent and entry.next in graph.types and entry.next not in updated:
            what, wanted = "a micro-batch replaces state", "a value that the update computes"
            raise InvalidGraph(what, where=f"input {entry.id!r}", got=entry.next, wanted=wanted)
    for op in once:
        for value in op.inputs:
            if value in dependent and not _is_float(graph, value):
                what, wanted = "the update reads what cannot be accumulated", "floats, which are added up"
                raise InvalidGraph(what, where=f"node {op.id!r}", got=f"{value}: {graph.types[value]}", wanted=wanted)


def _is_float(graph: Graph, value: str) -> bool:
    return is_float(graph.types[value].dtype)


def _make_accumulator(op: Op, value: str, name: str) -> Op:
    kind = op.results[op.values.index(value)]
    rule = bind_op(ACCUMULATE, (kind,), (kind,), attrs={}, notation=None)
    return Op(name, ACCUMULATE, (value,), (kind,), rule, scope=op.scope, phase="backward", accumulates=True)


def _name_sum(graph: Graph, value: str) -> str:
    """Return an id for an accumulator that no value of the graph has."""
    name = f"{value}.{SUFFIX}"
    while name in graph.types:
        name += f".{SUFFIX}"
    return name
