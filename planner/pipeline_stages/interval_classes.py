"""Intervals of units with equal graphs: the same layers elsewhere in the model.

A bound of a stage is one of every stage whose graph differs in names only. To find these, each op and each graph input
is described once, relative to its unit: what it computes, and for each value that it reads the distance to the unit
that computes it and the place there, among the values that others read where it is another unit. Intervals are equal
where these descriptions, with distances to the first unit, are equal in the order of the graph. What does not depend on
parameters counts to the unit that alone needs it, and is otherwise itself only.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.ir.graph import Op
from planner.pipeline_stages.cuts import Units

SHARED = -1
"""The unit of what several units need, or none."""
Span = tuple[int, int]
Description = tuple[object, ...]


class IntervalClasses:
    """The classes of the intervals of units."""

    def __init__(self, units: Units) -> None:
        self.units, self.graph = units, units.graph
        self.by_class: dict[int, dict[Description, list[Span]]] = {}

    def list_equal(self, first: int, last: int) -> list[Span]:
        """Return all intervals whose graphs equal that of `[first, last]`, itself among them."""
        return self._sort(last - first)[self._describe(first, last)]

    def list_classes(self, length: int) -> list[list[Span]]:
        """Return all intervals of so many units, by class, in order."""
        return list(self._sort(length).values())

    def _sort(self, length: int) -> dict[Description, list[Span]]:
        if length not in self.by_class:
            spans: dict[Description, list[Span]] = defaultdict(list)
            for begin in range(self.units.count - length + 1):
                spans[self._describe(begin, begin + length)].append((begin, begin + length))
            self.by_class[length] = spans
        return self.by_class[length]

    def _describe(self, first: int, last: int) -> Description:
        unit, number = self._sequence
        is_inside = (unit == SHARED) | ((unit >= first) & (unit < last))
        distance = np.where(unit == SHARED, SHARED, unit - first)[is_inside]
        relayed = tuple(self._relayed(first, last))
        return distance.tobytes(), number[is_inside].tobytes(), relayed, last == self.units.count

    def _relayed(self, first: int, last: int) -> list[object]:
        """Return the types of gradients that pass an interval without being read there."""
        spans = self._long_gradients
        return [self.graph.types[value] for value, (low, high) in spans.items() if low < first and high >= last]

    @cached_property
    def _long_gradients(self) -> dict[str, Span]:
        lowest = self.units.lowest_reader
        spans = {value: (lowest[value], unit) for value, unit in self.units.produced_backward.items()}
        return {value: span for value, span in spans.items() if span[1] - span[0] > 1}

    @cached_property
    def _home_of(self) -> dict[str, int]:
        """The unit of each op and graph input: the one that needs it, or SHARED."""
        graph, home = self.graph, dict(self.units.unit_of)
        needs: dict[str, set[int]] = defaultdict(set)
        replaces = {entry.next: entry.id for entry in graph.inputs if entry.next is not None}
        for value in graph.outputs:
            if value not in replaces:
                needs[value].add(SHARED)
        for op in reversed(graph.ops):
            if op.id not in home:
                needed = set().union(*(needs[value] for value in op.values))
                is_state = not replaces.keys().isdisjoint(op.values)
                home[op.id] = needed.pop() if len(needed) == 1 and not is_state else SHARED
            for value in op.inputs:
                needs[value].add(home[op.id])
        for entry in graph.inputs:
            users = needs[entry.id]
            home[entry.id] = next(iter(users)) if len(users) == 1 and entry.kind != "input" else SHARED
        return home

    @cached_property
    def _sequence(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The unit and the number of the description of each graph input and op, in the graph's order."""
        place: dict[str, tuple[int, int, int]] = {}
        counts: dict[int, int] = defaultdict(int)
        for entry in self.graph.inputs:
            place[entry.id] = self._home_of[entry.id], self._take_number(counts, entry.id), 0
        for op in self.graph.ops:
            number = self._take_number(counts, op.id)
            place.update({value: (self._home_of[op.id], number, k) for k, value in enumerate(op.values)})
        numbers: dict[Description, int] = {}
        sequence = []
        for entry in self.graph.inputs:
            unit = self._home_of[entry.id]
            follows = None if entry.next is None else self._relative(place, entry.next, unit)
            pins = self._pins.get(entry.id)
            description: Description = (entry.kind, entry.type, follows, entry.id if unit == SHARED else None, pins)
            sequence.append((unit, numbers.setdefault(description, len(numbers))))
        for op in self.graph.ops:
            description = self._describe_op(op, place)
            sequence.append((self._home_of[op.id], numbers.setdefault(description, len(numbers))))
        unit, number = np.array(sequence, np.int64).T
        return unit, number

    def _take_number(self, counts: dict[int, int], name: str) -> int:
        unit = self._home_of[name]
        counts[unit] += 1
        return counts[unit] - 1

    @cached_property
    def _exchanged(self) -> dict[str, Description]:
        """The number of each value that other units read, among those of its unit, and its type."""
        counts: dict[int, int] = defaultdict(int)
        numbered: dict[str, Description] = {}
        for op in self.graph.ops:
            for value in op.values:
                if any(self._ends(value, unit := self._home_of[op.id])[:2]):
                    counts[unit] += 1
                    numbered[value] = counts[unit], self.graph.types[value]
        return numbered

    def _relative(self, place: dict[str, tuple[int, int, int]], value: str, unit: int) -> Description:
        """Return where a value is computed, seen from a unit."""
        home, number, result = place[value]
        if SHARED in (home, unit):
            return (value,)
        if home != unit and value in self._exchanged:
            return home - unit, *self._exchanged[value]
        return home - unit, number, result

    def _describe_op(self, op: Op, place: dict[str, tuple[int, int, int]]) -> Description:
        unit = self._home_of[op.id]
        if unit == SHARED:
            return (op.id,)
        computes = (
            op.op,
            op.phase,
            op.notation,
            op.accumulates,
            tuple(sorted((k, repr(v)) for k, v in op.attrs.items())),
            op.option,
            self._pins.get(op.id),
        )
        reads = tuple(self._relative(place, value, unit) for value in op.inputs)
        return computes, reads, op.results, tuple(self._ends(value, unit) for value in op.values)

    @cached_property
    def _pins(self) -> dict[str, frozenset[Description]]:
        """The pins of what each op and graph input computes, and of what each op reads, by its place among these."""
        made = {value: (op, place) for op in self.graph.ops for place, value in enumerate(op.values)}
        ops = {op.id: op for op in self.graph.ops}
        pins: dict[str, set[Description]] = defaultdict(set)
        for one in self.graph.annotations:
            reader = ops.get(one.user or "")
            if reader is not None and one.value in reader.inputs:
                pins[reader.id].add(("read", reader.inputs.index(one.value), one.operand, one.sharding, one.required))
                continue
            owner, place = (made[one.value][0].id, made[one.value][1]) if one.value in made else (one.value, 0)
            pins[owner].add((one.user, place, one.operand is None, one.sharding, one.required))
        return {name: frozenset(found) for name, found in pins.items()}

    def _ends(self, value: str, unit: int) -> Description:
        """Return where a value goes beyond its unit: to earlier units, over a cut, and out of the graph."""
        lowest = self.units.lowest_reader[value]
        earlier = min(lowest - unit, 0) if value in self.units.produced_backward else 0
        return earlier, value in self._cut_values, value in self._outputs

    @cached_property
    def _cut_values(self) -> frozenset[str]:
        return frozenset(self.units.values)

    @cached_property
    def _outputs(self) -> frozenset[str]:
        return frozenset(self.graph.outputs)
