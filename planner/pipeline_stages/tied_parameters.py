"""Parameters that two units read, such as an embedding tied to the output layer: a copy in each of two stages.

A parameter that the forward pass reads in two places holds all units between them together
(`planner.pipeline_stages.cuts`). The other option is a copy: later readers read the copy, each reader's gradient is
accumulated by itself, and the two gradients are exchanged once in a step, before the update. Both updates then compute
the same from the same sum (Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC 2021, all-reduce the two embeddings' gradients).

This is an edit of the graph. The sum of the two gradients moves from the backward pass to the update, where each copy
has one of its own; what is to be sent is the first thing that the update computes, and what reads it the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from planner.ir.graph import Annotation, Graph, Op, value_id
from planner.ops import bind_op
from planner.pipeline_stages.cuts import PlacedOps, Tie, Units, find_units, place_ops

SUFFIX = "tied"
MOST_TIED = 3
"""Parameters of which a step may have copies; all subsets of these are considered."""


def list_units(graph: Graph) -> list[Units]:
    """Return the units of a step without copies, and those with copies of each set of parameters that allows cuts.

    Raises InvalidGraph for a graph without its three phases.
    """
    whole = find_units(graph)
    names = sorted(find_tied(graph), key=lambda name: (-graph.types[name].bytes, name))[:MOST_TIED]
    listed = [whole]
    for count in range(1, len(names) + 1):
        for chosen in combinations(names, count):
            units = find_tied_units(graph, chosen)
            if len(units.ties) == count and all(first < last for first, last in units.tied_units):
                listed.append(units)
    return listed


def find_tied_units(graph: Graph, parameters: Iterable[str]) -> Units:
    """Return the units of a step with copies of parameters; one that can have none stays as it is."""
    ties: tuple[Tie, ...] = ()
    for name in parameters:
        if (tied := _tie(graph, ties, name)) is not None:
            graph, ties = tied[0], (*ties, tied[1])
    return find_units(graph, ties)


def find_tied(graph: Graph) -> list[str]:
    """Return the parameters that the forward pass reads in two units of the finest split."""
    unit_of = place_ops(graph)[1].unit_of
    read: dict[str, set[int]] = {entry.id: set() for entry in graph.inputs if entry.kind == "parameter"}
    for op in graph.ops:
        if op.phase == "forward" and op.id in unit_of:
            for value in read.keys() & set(op.inputs):
                read[value].add(unit_of[op.id])
    return [name for name, units in read.items() if len(units) == 2]


@dataclass(frozen=True)
class _TiedGradient:
    """The op that adds the gradients of two readers, and which of its operands is the later reader's."""

    total: Op
    later: int


def _tie(graph: Graph, ties: tuple[Tie, ...], parameter: str) -> tuple[Graph, Tie] | None:
    """Return the graph with a copy of a parameter, or None where its gradient is no sum of two readers' gradients."""
    placed = place_ops(graph, ties)[1]
    last = max(placed.unit_of[op.id] for op in graph.ops if op.phase == "forward" and parameter in op.inputs)
    found = _find_gradient(graph, placed, parameter=parameter, last=last)
    if found is None:
        return None
    return _TieEdit(graph, placed, parameter, last).run(found)


def _find_gradient(graph: Graph, placed: PlacedOps, *, parameter: str, last: int) -> _TiedGradient | None:
    read_before = {value for op in graph.ops if op.phase != "update" for value in op.inputs}
    gradients = _list_gradients(graph, parameter) - read_before - set(graph.outputs)
    for op in graph.ops:
        if op.id not in gradients or op.op != "add" or op.attrs or len(op.inputs) != 2:
            continue
        is_later = [placed.high.get(each, -1) >= last for each in op.inputs]
        if sum(is_later) == 1:
            return _TiedGradient(op, is_later.index(True))
    return None


def _list_gradients(graph: Graph, parameter: str) -> set[str]:
    """Return the values of earlier phases on which the update of a parameter depends."""
    waiting = {entry.next for entry in graph.inputs if entry.id == parameter}
    found: set[str] = set()
    for op in reversed(graph.ops):
        if not waiting.isdisjoint(op.values):
            if op.phase == "update":
                waiting.update(op.inputs)
            else:
                found.update(op.values)
    return found


@dataclass
class _TieEdit:
    """The edit of a graph that gives the readers of unit `last` a copy of a parameter."""

    graph: Graph
    placed: PlacedOps
    parameter: str
    last: int

    def run(self, gradient: _TiedGradient) -> tuple[Graph, Tie] | None:
        total = gradient.total
        update = self._find_update(total.id)
        names = {name: self._name(name) for name in (self.parameter, total.id, *(op.id for op in update))}
        values = {value: value_id(names[op.id], k) for op in update for k, value in enumerate(op.values)}
        twins = [entry for entry in self.graph.inputs if entry.next in values]
        if self.parameter not in {entry.id for entry in twins}:
            return None
        names |= {entry.id: self._name(entry.id) for entry in twins}
        values |= {entry.id: names[entry.id] for entry in twins}
        copied = [replace(op, id=names[op.id], inputs=tuple(self._rename(op, values, names))) for op in update]
        sums = tuple(self._make_sum(value) for value in total.inputs)
        totals = [replace(total, id=name, inputs=tuple(one.id for one in sums)) for name in (total.id, names[total.id])]
        totals = [replace(one, phase="update") for one in totals]
        is_tied = {op.id for op in update}
        inner = [self._reread(op, names) for op in self.graph.ops if op.id not in {*is_tied, total.id}]
        before = [op for op in inner if op.phase != "update"]
        others = [op for op in inner if op.phase == "update"]
        entries = tuple(replace(each, id=names[each.id], next=values[each.next or ""]) for each in twins)
        graph = replace(
            self.graph,
            inputs=(*self.graph.inputs, *entries),
            ops=(*before, *sums, *others, *totals, *update, *copied),
            outputs=(*self.graph.outputs, *(values[each.next or ""] for each in twins)),
            annotations=(),
        )
        pins = self._list_pins(graph, {new: old for old, new in (names | values).items()})
        graph = replace(graph, annotations=tuple(dict.fromkeys(pins)))
        later, sooner = sums[gradient.later].id, sums[1 - gradient.later].id
        foreign = {total.id: later, names[total.id]: sooner}
        return graph, Tie(self.parameter, (sooner, later), foreign, {new: old for old, new in values.items()})

    def _find_update(self, total: str) -> list[Op]:
        """Return the ops of the update that depend on the gradient, the parameter or states that they replace."""
        followed = {entry.next: entry.id for entry in self.graph.inputs if entry.next is not None}
        reached, count = {total, self.parameter}, 0
        while count < len(reached):
            count = len(reached)
            for op in self.graph.ops:
                if op.phase == "update" and not reached.isdisjoint(op.inputs):
                    reached.update(op.values)
                    reached.update(followed[value] for value in op.values if value in followed)
        return [op for op in self.graph.ops if op.phase == "update" and not reached.isdisjoint(op.values)]

    def _rename(self, op: Op, values: dict[str, str], names: dict[str, str]) -> Iterator[str]:
        for value in op.inputs:
            yield values.get(value, names.get(value, value))

    def _reread(self, op: Op, names: dict[str, str]) -> Op:
        """Return an op that reads the copy, where it is the later reader or runs before the gradient of the sooner."""
        if op.phase == "update" or self.parameter not in op.inputs:
            return op
        near = [self.placed.high[value] for value in op.inputs if value in self.placed.high and value != self.parameter]
        unit = self.placed.unit_of[op.id] if op.phase == "forward" or not near else min(near)
        if unit < self.last:
            return op
        return replace(op, inputs=tuple(names[value] if value == self.parameter else value for value in op.inputs))

    def _list_pins(self, edited: Graph, original: Mapping[str, str]) -> Iterator[Annotation]:
        """Yield the pins of what stays, of its copies (`original`: of what), and of what all readers read now."""
        reads = {op.id: op.inputs for op in self.graph.ops}
        for pin in self.graph.annotations:
            inputs = reads.get(pin.user or "", ())
            if pin.value in inputs:
                for op in edited.ops:
                    if pin.user in (op.id, original.get(op.id)):
                        at = (n for n, value in enumerate(inputs) if value == pin.value)
                        new = (op.inputs[n] for n in at if pin.operand in (None, n))
                        yield from (replace(pin, value=value, user=op.id) for value in new)
                continue
            yield pin
            where = edited.types if pin.user is None else edited.outputs
            copies = (value for value in where if original.get(value) == pin.value)
            yield from (replace(pin, value=value, operand=None) for value in copies)

    def _make_sum(self, value: str) -> Op:
        """Return the op whose value is sent: the gradient of all micro-batches as it is."""
        kind = self.graph.types[value]
        rule = bind_op("reshape", (kind,), (kind,), attrs={}, notation=None)
        return Op(self._name(value), "reshape", (value,), (kind,), rule, phase="update")

    def _name(self, name: str) -> str:
        """Return an id that no value of the graph has."""
        taken = {*self.graph.types, *(op.id for op in self.graph.ops)}
        name = f"{name}.{SUFFIX}"
        while name in taken:
            name += f".{SUFFIX}"
        return name
