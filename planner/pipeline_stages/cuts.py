"""Where a training step may be cut into stages: units of the forward pass, with the backward and update ops of each.

A *cut* is a step of the forward pass after which later forward ops need one value only that depends on parameters,
such as the residual stream between two blocks. The value is sent from stage to stage. Values that do not depend on
parameters (masks, positions) are computed by every stage that needs them, and data is given to every stage that reads
it.

A forward op belongs to the unit in which it runs. A backward op runs as soon as the gradients that it reads have come
down from later units, in the last unit that holds all the forward values and parameters that it reads: a forward value
is held from the unit that computes it to the last one whose forward pass reads it. So a gradient travels down once, as
its value travelled up. An op of the update belongs to the unit of the parameters, states and gradients that it reads.

Some cuts would part what cannot be: a parameter that several units read (tied embeddings), a gradient needed where its
operands are not held, an update over parameters of several units (clipping by a global norm). Such units are one, as
are those without parameters of their own with the unit before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.choose.rematerialization import AwaitedValues, find_parameter_dependent
from planner.errors import InvalidGraph
from planner.ir.graph import Graph, Op


@dataclass(frozen=True, slots=True)
class Seam:
    """A place where the units `first` to `last` cannot be parted, and what holds them together."""

    first: int
    last: int
    reason: str


@dataclass(frozen=True, eq=False)
class Tie:
    """A parameter of which two units have a copy each (`planner.pipeline_stages.tied_parameters`).

    sums     the values exchanged in the update: the gradients of the copy in the first unit, and of that in the last
    foreign  by op that adds up both gradients, the one of them that comes from the other unit
    copies   the original of each input and value of the update that belongs to the copy in the last unit
    """

    parameter: str
    sums: tuple[str, str]
    foreign: Mapping[str, str]
    copies: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Units:
    """The units of a training step.

    values    sent up at each cut: `values[n]` from unit n to unit n + 1
    unit_of   the unit of each op that depends on parameters; all others run wherever they are needed
    seams     what kept larger units together, the widest first
    ties      the parameters that two units have copies of
    """

    graph: Graph
    values: tuple[str, ...]
    unit_of: Mapping[str, int]
    seams: tuple[Seam, ...]
    ties: tuple[Tie, ...] = ()

    @property
    def count(self) -> int:
        return len(self.values) + 1

    @property
    def tied_units(self) -> list[tuple[int, int]]:
        """The units that hold the two copies of each tied parameter."""
        return [(self.unit_of[tie.sums[0]], self.unit_of[tie.sums[1]]) for tie in self.ties]

    def can_be(self, stages: int) -> bool:
        """Whether the units may be parted into so many stages."""
        return (2 if self.ties else 1) <= stages <= self.count

    @cached_property
    def may_be_stages(self) -> NDArray[np.bool_]:
        """Whether each interval [a, b) may be a stage: two copies of a parameter are in two stages."""
        may = np.triu(np.ones((self.count + 1, self.count + 1), bool), 1)
        for first, last in self.tied_units:
            may[: first + 1, last + 1 :] = False
        return may

    @cached_property
    def produced_forward(self) -> dict[str, int]:
        """The unit of each value of the forward pass that depends on parameters."""
        return self._map_produced("forward")

    @cached_property
    def produced_backward(self) -> dict[str, int]:
        """The unit of each value of the backward pass that depends on parameters."""
        return self._map_produced("backward")

    def _map_produced(self, phase: str) -> dict[str, int]:
        ops = (op for op in self.graph.ops if op.phase == phase and op.id in self.unit_of)
        return {value: self.unit_of[op.id] for op in ops for value in op.values}

    @cached_property
    def lowest_reader(self) -> dict[str, int]:
        """The first unit that reads each value; the last one where none does."""
        lowest = dict.fromkeys(self.graph.types, self.count)
        for op in self.graph.ops:
            for value in op.inputs:
                lowest[value] = min(lowest[value], self.unit_of.get(op.id, self.count))
        return lowest

    def name_unit(self, unit: int) -> str:
        """Return the scope at which a unit begins, or its first op where that has none."""
        first = next(op for op in self.graph.ops if op.phase == "forward" and self.unit_of.get(op.id) == unit)
        return first.scope or first.id

    def describe_limit(self) -> str:
        """Return why there are no more units."""
        if self.seams:
            return self.seams[0].reason
        return "the forward pass has no more places after which one value is needed"


def find_units(graph: Graph, ties: tuple[Tie, ...] = ()) -> Units:
    """Return the smallest units of a training step. Raises InvalidGraph for a graph without its three phases."""
    values, placed = place_ops(graph, ties)
    placed.join_unread()
    return _merge(Units(graph, tuple(values), placed.unit_of, (), ties), placed.seams)


def place_ops(graph: Graph, ties: tuple[Tie, ...] = ()) -> tuple[list[str], PlacedOps]:
    """Return the values at all cuts and the units between them, before any are joined."""
    if missing := [p for p in ("forward", "backward", "update") if all(op.phase != p for op in graph.ops)]:
        got = f"no node of the phase {missing[0]}"
        what = "pipeline stages of a graph without phases"
        raise InvalidGraph(what, where=f"graph {graph.name!r}", got=got, wanted="a training step")
    values, unit_of = _split_forward(graph)
    foreign = {op: value for tie in ties for op, value in tie.foreign.items()}
    placed = PlacedOps(graph, unit_of, len(values) + 1, foreign)
    placed.place_backward()
    for op in graph.ops:
        if op.phase == "update":
            placed.place_update(op)
    return values, placed


def _split_forward(graph: Graph) -> tuple[list[str], dict[str, int]]:
    """Return the values at all cuts, and the unit of every forward op that depends on parameters."""
    awaited, dependent = AwaitedValues(graph), find_parameter_dependent(graph)
    values: list[str] = []
    unit_of: dict[str, int] = {}
    for place, op in enumerate(graph.ops):
        left = awaited.awaited_after(place)
        if op.phase != "forward" or dependent.isdisjoint(op.values):
            continue
        unit_of[op.id] = len(values)
        if len(left) == 1 and (value := next(iter(left))) in op.values:
            values.append(value)
    return values, unit_of


class PlacedOps:
    """The units of ops while they are placed, and the seams that this needs.

    `low` and `high`: the first and the last unit that holds each value which depends on parameters. Gradients are not
    held in between: `low` is that of their reader furthest down. `foreign`: values that an op of the update receives.
    """

    def __init__(self, graph: Graph, unit_of: dict[str, int], count: int, foreign: Mapping[str, str]) -> None:
        self.graph, self.unit_of, self.count, self.foreign = graph, unit_of, count, foreign
        self.seams: list[Seam] = []
        self.low: dict[str, int] = {}
        self.high: dict[str, int] = {}
        self.names = {entry.id: f"{entry.kind} {entry.name!r}" for entry in graph.inputs}
        self.parameters = {entry.id for entry in graph.inputs if entry.kind == "parameter"}
        for op in graph.ops:
            if op.phase == "forward" and op.id in unit_of:
                self._hold(op.values, unit_of[op.id], unit_of[op.id])
                self._read_forward(op, unit_of[op.id])
        self.replaced = {entry.next: entry.id for entry in graph.inputs if entry.next is not None}
        self.forward = set(self.low)
        read = {value for op in graph.ops if op.phase != "update" for value in op.inputs}
        self.ends = {value for op in graph.ops for value in op.values} - read

    def place_backward(self) -> None:
        """Place the ops of the backward pass.

        First each in the last unit that holds its operands. A gradient of a parameter is then computed in the unit of
        the parameter, and so is what only an earlier unit wants where its operands come down there anyway.
        """
        backward = [op for op in self.graph.ops if op.phase == "backward"]
        for op in backward:
            if held := [self.high[value] for value in op.inputs if value in self.high]:
                self._place_gradients(op, min(held))
        wanted = self._find_wanted_units(backward)
        for op in backward:
            unit = self.unit_of.get(op.id)
            if unit is None:
                continue
            lower, is_last = wanted.get(op.id, unit), self.ends.issuperset(op.values)
            if lower < unit and (is_last or all(self.low[v] <= lower for v in op.inputs if v in self.low)):
                unit = lower
            self._place_gradients(op, unit)
            for value in op.inputs:
                if value in self.forward and self.low[value] > unit:
                    self._join(
                        unit, self.low[value], f"node {op.id!r} reads {value!r}, which earlier units do not hold"
                    )

    def _place_gradients(self, op: Op, unit: int) -> None:
        self.unit_of[op.id] = unit
        self._hold(op.values, unit, unit)
        for value in op.inputs:
            if value in self.low and value not in self.forward:
                self.low[value] = min(self.low[value], unit)

    def _find_wanted_units(self, backward: list[Op]) -> dict[str, int]:
        """Return the last unit that wants what each op computes, for ops that are wanted in earlier units only."""
        wants: dict[str, list[int]] = {}
        for op in reversed(self.graph.ops):
            homes = [*self._homes(op), *(unit for value in op.values for unit in wants.get(value, ()))]
            if op.phase == "update" and homes:
                for value in self._own_inputs(op):
                    wants.setdefault(value, []).append(max(homes))
        wanted = {}
        for op in reversed(backward):
            if op.id not in self.unit_of:
                continue
            after = [unit for value in op.values for unit in wants.get(value, ())]
            unit = max(after, default=self.unit_of[op.id])
            wanted[op.id] = unit
            for value in op.inputs:
                wants.setdefault(value, []).append(unit)
        return wanted

    def _homes(self, op: Op) -> list[int]:
        """Return the units of the parameters that an op reads or replaces."""
        near = {*op.inputs, *(self.replaced[value] for value in op.values if value in self.replaced)}
        return [self.low[value] for value in sorted(near & self.parameters & self.low.keys())]

    def place_update(self, op: Op) -> None:
        """Place an op of the update where all that it reads is."""
        held = [(self.low[value], self.high[value]) for value in self._own_inputs(op) if value in self.high]
        held += [(unit, unit) for unit in self._homes(op)]
        if not held:
            return
        first, last = min(low for low, _ in held), max(high for _, high in held)
        self._join(first, last, f"the update {op.id!r} reads values of several units")
        self.unit_of[op.id] = first
        self._hold(op.values, first, last)

    def _own_inputs(self, op: Op) -> list[str]:
        return [value for value in op.inputs if self.foreign.get(op.id) != value]

    def join_unread(self) -> None:
        """Join each unit without an update of its own to its neighbour before, or the first one to that after."""
        updated = {self.unit_of[op.id] for op in self.graph.ops if op.phase == "update" and op.id in self.unit_of}
        for unit in range(self.count):
            if unit not in updated and self.count > 1:
                self._join(max(unit - 1, 0), max(unit, 1), "a stage needs parameters of its own")

    def _read_forward(self, op: Op, unit: int) -> None:
        for value in op.inputs:
            if value in self.parameters and value in self.low:
                reason = f"{self.names[value]} is read by several units"
                self._join(min(self.low[value], unit), max(self.high[value], unit), reason)
            if value in self.parameters or value in self.low:
                self._hold((value,), min(self.low.get(value, unit), unit), max(self.high.get(value, unit), unit))

    def _hold(self, values: Iterable[str], first: int, last: int) -> None:
        for value in values:
            self.low[value], self.high[value] = first, last

    def _join(self, first: int, last: int, reason: str) -> None:
        if first < last:
            self.seams.append(Seam(first, last, reason))


def _merge(units: Units, seams: list[Seam]) -> Units:
    """Return the units that are left where seams hold units together."""
    joined = {cut for seam in seams for cut in range(seam.first, seam.last)}
    number, numbers = 0, []
    for unit in range(units.count):
        numbers.append(number)
        number += unit not in joined
    left = tuple(value for cut, value in enumerate(units.values) if cut not in joined)
    widest = sorted(seams, key=lambda seam: seam.first - seam.last)
    unit_of = {op: numbers[unit] for op, unit in units.unit_of.items()}
    return replace(units, values=left, unit_of=unit_of, seams=tuple(widest))
