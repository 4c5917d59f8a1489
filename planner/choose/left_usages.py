"""Memory of what passes of a micro-batch leave for later passes, while others are in flight (`planner.ir.in_flight`).

It is that of `planner.ir.left_values`, in terms of variables: a value without a shared copy is left in the layout in
which it is computed, one with a shared copy in that of the copy, where it was shared before the pass ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.choose.edge_matrices import EdgeMatrices
from planner.choose.liveness import Liveness, SharedLifetime
from planner.choose.variables import Role, Variable

Integers = NDArray[np.int64]
UsageSpan = tuple[int, int, Integers]


class LeftUsage(NamedTuple):
    """`copies` more copies of a value are held in each of some spans of time steps."""

    copies: int
    spans: tuple[tuple[int, int], ...]


def add_usages(spans: list[UsageSpan], more: list[UsageSpan]) -> list[UsageSpan]:
    """Return the sum of usages over some time steps, in spans that do not overlap."""
    if not more:
        return spans
    listed = [*spans, *more]
    moments = sorted({moment for start, stop, _ in listed if start < stop for moment in (start, stop)})
    return [
        (
            start,
            stop,
            np.sum([held for first, last, held in listed if first <= start < last], axis=0, dtype=np.int64),
        )
        for start, stop in pairwise(moments)
        if any(first <= start < last for first, last, _ in listed)
    ]


@dataclass(frozen=True)
class LeftUsages:
    """Which values the passes of a micro-batch leave, by the time steps of a graph."""

    liveness: Liveness
    tables: EdgeMatrices

    @cached_property
    def boundaries(self) -> list[tuple[int, int]]:
        """The first step after the forward and the backward pass, with the number of other micro-batches that hold what
        they leave."""
        time, flying = self.liveness, self.liveness.with_clones.graph.in_flight
        ends = [0, 0]
        for place, op in enumerate(time.ops):
            if op.phase != "update" and op.recompute_of is None and op.id not in flying.late:
                ends[op.phase != "forward"] = time.ran_at[place] + 1
        last = max(ends) if flying.late else time.loop_end
        return [(ends[0], flying.after_forward), (last, flying.after_backward)]

    @property
    def _gradients(self) -> frozenset[str]:
        return self.liveness.with_clones.graph.in_flight.gradients

    @cached_property
    def _sums(self) -> set[str]:
        return {value for op in self.liveness.ops if op.accumulates for value in op.values}

    @cached_property
    def dependent(self) -> set[str]:
        """The data of micro-batches, and what is computed from them in the loop."""
        dependent = set(self.liveness.with_clones.graph.data)
        for op in self.liveness.ops:
            if op.phase != "update" and not op.accumulates and not dependent.isdisjoint(op.inputs):
                dependent.update(op.values)
        return dependent

    def of_variable(self, variable: Variable) -> list[UsageSpan]:
        """Return the usage of what a variable leaves."""
        if variable.role is Role.OUTPUT or not any(count for _, count in self.boundaries):
            return []
        if variable.role is Role.SHARED_COPY:
            return self._of_hub(variable)
        spans: list[UsageSpan] = []
        for value, port in zip(self._values_of(variable), variable.results, strict=True):
            usage = self._of_value(value, self.liveness.produced_at.get(value))
            spans += _fill(usage, self.tables.held(value, port))
        return spans

    def _values_of(self, variable: Variable) -> tuple[str, ...]:
        return (variable.name,) if variable.role is Role.INPUT else self._results[variable.name]

    @cached_property
    def _results(self) -> dict[str, tuple[str, ...]]:
        return {op.id: op.values for op in self.liveness.ops}

    def _of_hub(self, hub: Variable) -> list[UsageSpan]:
        """Return what is left of a shared copy; copies of inputs that do not depend on data are those of edges."""
        is_input = hub.name not in self.liveness.produced_at
        if is_input and hub.name not in self.dependent:
            return []
        held, spans = self.tables.held(hub.name, hub.results[0]), []
        for number, life in enumerate(hub.lifetimes):
            spans += _fill(self._of_copy(hub.name, life), held * (hub.lifetime_of == number))
        return spans

    def _of_value(self, value: str, made: int | None) -> LeftUsage | None:
        """Return the usage of a value in the layout in which it is computed at a step; None stands for an input."""
        reads = [moment for moment, _ in self.liveness.reads_at.get(value, ())]
        if value in self.liveness.shared_at:
            return self._usage(value, made, self.liveness.shared_at[value], ended=self.liveness.shared_at[value] + 1)
        # An input that is read once is given to the pass that reads it, but for the gradients of the backward pass.
        is_kept = made is not None or value in self._gradients
        return self._usage(value, made, reads[0], ended=reads[0] + 1) if reads and is_kept else None

    def _of_copy(self, value: str, life: SharedLifetime | None) -> LeftUsage | None:
        """Return the usage of a shared copy with a lifetime."""
        if life is None:
            return None
        start, stop = self.liveness.held(value, life)
        is_handed_over = life.is_kept and value in self.liveness.with_clones.clones
        groups = self.liveness.read_groups[value]
        last = stop if is_handed_over else next(g.moment for g in groups if g.position == life.last)
        return self._usage(value, start - 1, self._last_in_loop(value, last), ended=stop)

    def _last_in_loop(self, value: str, last: int) -> int:
        """Return the last read of a value in the loop, which outputs and the update are not part of."""
        if last < self.liveness.loop_end:
            return last
        return max((m for m, _ in self.liveness.reads_at[value] if m < self.liveness.loop_end), default=-1)

    def _usage(self, value: str, made: int | None, last: int, *, ended: int) -> LeftUsage | None:
        loop = self.liveness.loop_end
        if made is not None and (made >= loop or value in self._sums):
            return None
        boundaries = self.boundaries[value in self._gradients :]
        crossed = [n for end, n in boundaries if n and (made is None or made < end) and end <= last < loop]
        if not crossed:
            return None
        if value in self.dependent:
            return LeftUsage(sum(crossed), ((0, loop),))
        return None if made is None else LeftUsage(1, ((0, made), (min(ended, loop), loop)))

    def of_input_copy(self, value: str, life: SharedLifetime) -> list[tuple[int, int]]:
        """Return the spans in which a copy of an input that does not depend on data is held between its passes."""
        usage = None if value in self.dependent else self._of_copy(value, life)
        return [] if usage is None else [(start, stop) for start, stop in usage.spans if start < stop]


def _fill(usage: LeftUsage | None, held: Integers) -> list[UsageSpan]:
    if usage is None:
        return []
    return [(start, stop, usage.copies * held) for start, stop in usage.spans if start < stop]
