"""The graph of one stage: what an interval of units computes for one micro-batch, and what it exchanges.

It is a graph like any other. What comes from neighbouring stages (the value at the cut before it, gradients of the
value at the cut after it) is data of the micro-batch, an input with the value's own id; what goes to them is an output.
What does not depend on parameters is computed in every stage that needs it. An input that the graph returns is an
output of each stage that reads it, or of the last one.

A pin of a value holds where the stage computes it or takes it from outside, and for the ops that read it; a value that
is received may come in any layout.

Its ops are in the order forward, backward, update. Where gradients of parameters are computed apart (zb-h1), those
backward ops that no gradient sent down depends on come last, as *late* ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from planner.ir.graph import PHASES, Annotation, Graph, Input, Op
from planner.ir.in_flight import InFlight
from planner.pipeline_stages.cuts import Units
from planner.rewrite.accumulate import accumulate_gradients


@dataclass(frozen=True, eq=False)
class StageGraph:
    """The units `first` to `last` (excluded) of a training step as a graph of one micro-batch.

    received, sent                      values of the forward pass, from the stage before and to the one after
    received_gradients, sent_gradients  values of the backward pass, from the stage after and to the one before
    received_sums, sent_sums            gradients of tied parameters, exchanged once with the stage of the other copy
    """

    graph: Graph
    first: int
    last: int
    received: tuple[str, ...]
    sent: tuple[str, ...]
    received_gradients: tuple[str, ...]
    sent_gradients: tuple[str, ...]
    received_sums: tuple[str, ...] = ()
    sent_sums: tuple[str, ...] = ()

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The scopes of the forward ops, in order, each once."""
        scopes = (op.scope for op in self.graph.ops if op.phase == "forward")
        return tuple(dict.fromkeys(scope for scope in scopes if scope))

    def make_step(self, microbatches: int, held: tuple[int, int], *, is_split: bool) -> Graph:
        """Return the graph of a step of several micro-batches, `held` of them in flight beside the one that runs.

        held  those between forward and backward pass, and those between backward pass and late ops
        """
        step = accumulate_gradients(self.order_ops(is_split=is_split), microbatches)
        late = self._find_late(step) if is_split else frozenset[str]()
        return replace(step, in_flight=InFlight(*held, late, frozenset(self.received_gradients)))

    def make_loop(self, microbatches: int, held: tuple[int, int], *, is_split: bool) -> Graph:
        """Return the graph of a step without its update: all passes, with all that the step holds in memory.

        What the update would read is left in any layout, partial sums too.
        """
        step = self.make_step(microbatches, held, is_split=is_split)
        ops = tuple(op for op in step.ops if op.phase != "update")
        made = {value for op in ops for value in op.values}
        inputs = tuple(entry if entry.next in made else replace(entry, next=None) for entry in step.inputs)
        left = made | {entry.id for entry in inputs}
        ends = tuple(value for value in step.outputs if value in left)
        return _take_part(step, inputs, ops, outputs=ends)

    def order_ops(self, *, is_split: bool) -> Graph:
        """Return the stage's graph of one micro-batch with its ops in the order of the passes."""
        late = self._find_late(self.graph) if is_split else frozenset()
        ops = sorted(self.graph.ops, key=lambda op: (PHASES.index(op.phase), op.id in late))
        return replace(self.graph, ops=tuple(ops))

    def make_passes(self, is_wanted: Callable[[Op, frozenset[str]], bool]) -> Graph:
        """Return the graph of passes of one micro-batch, without update; `is_wanted` is told an op and all late ops.

        Gradients of parameters are computed and dropped, in any layout.
        """
        late = self._find_late(self.graph)
        ops = tuple(op for op in self.graph.ops if op.phase != "update" and is_wanted(op, late))
        read = {value for op in ops for value in op.inputs}
        made = {value for op in ops for value in op.values}
        inputs = tuple(replace(entry, next=None) for entry in self.graph.inputs if entry.id in read)
        ends = tuple(value for value in self.graph.outputs if value in made)
        return _take_part(self.graph, inputs, ops, outputs=ends)

    def _find_late(self, step: Graph) -> frozenset[str]:
        """Return the backward ops that no gradient sent down depends on; an accumulator follows what it adds up."""
        needed = set(self.sent_gradients)
        for op in reversed(step.ops):
            if not needed.isdisjoint(op.values):
                needed.update(op.inputs)
        late = [op for op in step.ops if op.phase == "backward" and needed.isdisjoint(op.values)]
        added = {value for op in late if not op.accumulates for value in op.values}
        return frozenset(op.id for op in late if not op.accumulates or op.inputs[0] in added)


def extract_stage(units: Units, first: int, last: int) -> StageGraph:
    """Return the graph of the units from `first` to `last` (excluded)."""
    graph, is_last = units.graph, last == units.count
    ops = _find_ops(units, first, last)
    made = {value for op in ops for value in op.values}
    read = {value for op in ops for value in op.inputs}
    up = tuple(v for v, unit in units.produced_forward.items() if v in read and unit < first)
    down = tuple(v for v, unit in units.produced_backward.items() if v in read and unit >= last)
    sent = () if is_last else (units.values[last - 1],)
    sent_down = tuple(
        v for v, unit in units.produced_backward.items() if unit >= first and units.lowest_reader[v] < first
    )
    relayed = tuple(v for v in sent_down if v not in made and v not in down)
    unread = {entry.id for entry in graph.inputs} - {value for op in graph.ops for value in op.inputs}
    entries = [entry for entry in graph.inputs if entry.id in read or (is_last and entry.id in unread)]
    away = [sums for tie in units.ties for sums in (tie.sums, tie.sums[::-1]) if sums[0] not in made]
    sums = tuple(theirs for theirs, ours in away if ours in made)
    own_sums = tuple(ours for _, ours in away if ours in made)
    received = [Input(value, "input", value, graph.types[value]) for value in (*up, *down, *relayed, *sums)]
    shown = made | {entry.id for entry in entries}
    stage = Graph(
        graph.name,
        (*(entry if entry.next in made else replace(entry, next=None) for entry in entries), *received),
        ops,
        tuple(dict.fromkeys((*(v for v in graph.outputs if v in shown), *sent, *sent_down, *own_sums))),
        producer=graph.producer,
        sent=frozenset((*sent, *sent_down)),
    )
    received_values = frozenset(entry.id for entry in received)
    stage = replace(stage, annotations=tuple(_list_pins(graph, stage, received_values)))
    return StageGraph(stage, first, last, up, sent, (*down, *relayed), sent_down, sums, own_sums)


def _take_part(whole: Graph, inputs: tuple[Input, ...], ops: tuple[Op, ...], *, outputs: tuple[str, ...]) -> Graph:
    """Return a part of a graph with its pins; one without outputs returns its last value."""
    part = replace(whole, inputs=inputs, ops=ops, outputs=outputs or ops[-1].values[:1], annotations=())
    return replace(part, annotations=tuple(_list_pins(whole, part)))


def _list_pins(whole: Graph, part: Graph, received: frozenset[str] = frozenset()) -> Iterator[Annotation]:
    """Yield the annotations of a graph for a part of it, except for the definition of values that it receives."""
    if not whole.annotations:
        return
    ops, readers = {op.id for op in part.ops}, {(value, op.id) for op in whole.ops for value in op.inputs}
    for one in whole.annotations:
        if one.user is None:
            if one.value in part.types and one.value not in received:
                yield one
        elif (one.value, one.user) in readers:
            if one.user in ops:
                yield one
        elif one.value in part.outputs and one.value in whole.outputs:
            yield one if one.operand is None else replace(one, operand=part.outputs.index(one.value))


def _find_ops(units: Units, first: int, last: int) -> tuple[Op, ...]:
    """Return the ops of the units, and those that do not depend on parameters and are needed by them.

    These are what an op of the stage reads, and what replaces a state that one reads; the last stage has the others
    that lead to outputs of the graph.
    """
    graph = units.graph
    needed = {op.id for op in graph.ops if first <= units.unit_of.get(op.id, -1) < last}
    replaced = {entry.id: entry.next for entry in graph.inputs}
    wanted = set(graph.outputs) - set(replaced.values()) if last == units.count else set()
    count = -1
    while count < len(needed):
        count = len(needed)
        for op in reversed(graph.ops):
            if op.id in needed or (op.id not in units.unit_of and not wanted.isdisjoint(op.values)):
                needed.add(op.id)
                wanted.update(op.inputs)
                wanted.update(after for value in op.inputs if (after := replaced.get(value)) is not None)
    return tuple(op for op in graph.ops if op.id in needed)
