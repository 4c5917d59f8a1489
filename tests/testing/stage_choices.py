"""The choices of layouts of a pipeline stage that may be best, listed one variable after the other.

Of those that agree in what is still to be decided with, and in the layouts that the stage exchanges, the ones are kept
that no other is as good as in every pass, the update and the memory of what is to come. What a stage sends has a layout
that is there when the pass ends that computes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.choose.formulate import Formulation
from planner.choose.operand_layouts import OperandLayouts
from planner.choose.variables import Role
from planner.ir.execution_order import Execute, Read, Share
from planner.ir.graph import PHASES, Op
from planner.ir.sharding import Sharding
from planner.pipeline_stages.stage_graph import StageGraph
from solvers.model import IMPOSSIBLE, Edge

Integers = NDArray[np.int64]
MAX_ROWS, MAX_NUMBERS = 8_000, 20_000_000
"""Choices to compare with each other, and numbers of all choices, beyond which listing them takes minutes and
gigabytes."""
PARTS = 4
"""Columns of a choice's times in ps: forward, backward and late pass of all micro-batches, and update."""


class TooManyChoices(Exception):
    """More choices may be best than can be listed."""


@dataclass(frozen=True)
class StageChoices:
    """The choices of a stage that may be best.

    times    ps of forward, backward and late pass of a micro-batch, and of the update, `[choices, 4]`
    layouts  of the values that the stage exchanges, each combination once; `which`: the number of each choice's
    """

    times: Integers
    layouts: list[dict[str, Sharding]]
    which: Integers

    def work(self, microbatches: int) -> Integers:
        """Return the time in ps of all passes and the update, `[choices]`."""
        total: Integers = microbatches * self.times[:, : PARTS - 1].sum(axis=1) + self.times[:, PARTS - 1]
        return total

    def select(self, chosen: NDArray[np.intp]) -> StageChoices:
        return StageChoices(self.times[chosen], self.layouts, self.which[chosen])


@dataclass
class StageListing:
    """The choices of a stage's step, listed one variable after the other, each a row of times and usages by step."""

    stage: StageGraph
    question: Formulation
    limit_bytes: int | None

    def __post_init__(self) -> None:
        self.graph, self.variables = self.question.graph, self.question.variables
        self.ops = {op.id: op for op in self.graph.ops}
        self.steps = 0 if self.limit_bytes is None else self.question.liveness.end + 1
        self.edges: list[list[tuple[Edge, int]]] = [[] for _ in self.variables]
        for edge, column in zip(self.question.problem.edges, self._list_edge_columns(), strict=True):
            self.edges[max(edge.source, edge.target)].append((edge, column))
        self.near = [
            sorted({n, *(k for e, _ in edges for k in (e.source, e.target))}) for n, edges in enumerate(self.edges)
        ]
        self.sent = *self.stage.sent, *self.stage.sent_gradients
        outputs = {str(self.graph.outputs.index(value)): value for value in self.sent}
        inputs = {value: value for value in (*self.stage.received, *self.stage.received_gradients)}
        names = {Role.INPUT: inputs, Role.OUTPUT: outputs}
        known = ((n, names.get(each.role, {}).get(each.name)) for n, each in enumerate(self.variables))
        self.exchanged = {number: value for number, value in known if value is not None}

    def run(self) -> StageChoices:
        """Return the choices that are left, by the layouts that the stage exchanges. Raises TooManyChoices."""
        last = list(range(len(self.variables)))
        for edge in self.question.problem.edges:
            last[min(edge.source, edge.target)] = max(
                last[min(edge.source, edge.target)], max(edge.source, edge.target)
            )
        # Each row is a choice so far; `decided` has its strategies of the variables that are still to be decided with.
        rows, decided, kept = np.zeros((1, PARTS + self.steps), np.int64), np.zeros((1, 0), np.int64), list[int]()
        for number, variable in enumerate(self.variables):
            known, strategies = [*kept, number], np.arange(len(variable.costs))
            chosen = np.tile(strategies, len(rows))
            decided = np.column_stack([np.repeat(decided, len(strategies), axis=0), chosen])
            near = self.near[number]
            ends, which = _number_rows(decided[:, [known.index(k) for k in near]])
            found = [self._add(dict(zip(near, at, strict=True)), number) for at in ends.tolist()]
            is_allowed = np.array([each is not None for each in found], bool)[which]
            nothing = np.zeros(rows.shape[1], np.int64)
            table = np.array([nothing if each is None else each for each in found], np.int64)
            added = table.reshape(-1, rows.shape[1])[which[is_allowed]]
            kept = [k for k in known if last[k] > number or k in self.exchanged]
            decided = decided[is_allowed][:, [known.index(k) for k in kept]]
            _, groups = _number_rows(decided)
            if np.bincount(groups).max(initial=0) > MAX_ROWS or added.size > MAX_NUMBERS:
                raise TooManyChoices
            rows = np.repeat(rows, len(strategies), axis=0)[is_allowed] + added
            left = self._select_best(rows, groups, number)
            rows, decided = rows[left], decided[left]
        states, which = _number_rows(decided)
        named = [dict(zip(kept, key, strict=True)) for key in states.tolist()]
        layouts = [{v: self._layout(n, at[n]) for n, v in self.exchanged.items()} for at in named]
        times = rows[:, :PARTS].copy()
        times[:, :3] //= self.graph.microbatches
        return StageChoices(times, layouts, which)

    def _add(self, at: dict[int, int], number: int) -> Integers | None:
        """Return what a variable adds where those before it are decided, or None where its strategy is forbidden."""
        node, added = self.question.problem.nodes[number], np.zeros(PARTS + self.steps, np.int64)
        added[self._column(number)] += node.cost[at[number]]
        self._use(added, *node.interval, node.usage[at[number]])
        if (more := node.more_usage) is not None:
            for start, stop, usage in zip(more.start, more.stop, more.usage, strict=True):
                self._use(added, int(start), int(stop), usage[at[number]])
        for edge, column in self.edges[number]:
            ends = edge.source_class[at[edge.source]], edge.target_class[at[edge.target]]
            added[column] += edge.cost(*ends) + self._bar_late_copy(edge, column, at)
            for usage in edge.usages:
                self._use(added, usage.start, usage.stop, edge.select(usage.matrix, *ends))
            value = self.exchanged.get(edge.target)
            if value is not None and self.variables[edge.target].role is Role.OUTPUT:
                is_as_computed = self._layout(edge.source, at[edge.source], value) == self._layout(number, at[number])
                added[column] += 0 if is_as_computed else IMPOSSIBLE
        return added if added[:PARTS].max() < IMPOSSIBLE else None

    def _bar_late_copy(self, edge: Edge, column: int, at: dict[int, int]) -> int:
        """Return IMPOSSIBLE where what is sent would be brought into another layout after the pass that computes it."""
        maker, copy = (self.variables[end] for end in (edge.source, edge.target))
        if copy.role is not Role.SHARED_COPY or copy.name not in self.sent:
            return 0
        is_late = maker.role is Role.INPUT or column != self._pass_of(self.ops[maker.name])
        is_moved = self._layout(edge.source, at[edge.source], copy.name) != self._layout(edge.target, at[edge.target])
        return IMPOSSIBLE if is_late and is_moved else 0

    def _use(self, added: Integers, start: int, stop: int, usage: np.int64 | Integers) -> None:
        if self.steps:
            added[PARTS + start : PARTS + stop] += usage

    def _layout(self, number: int, strategy: int, value: str | None = None) -> Sharding:
        """Return the layout of a variable, or of one of the results of an op."""
        variable = self.variables[number]
        result = self.ops[variable.name].values.index(value) if variable.role is Role.OP and value else 0
        port: OperandLayouts = (*variable.results, *variable.operands)[result]
        layout: Sharding = port.states[port.classes[strategy]]
        return layout

    def _column(self, number: int) -> int:
        op = self.ops.get(self.variables[number].name) if self.variables[number].role is Role.OP else None
        return 3 if op is None else self._pass_of(op)

    def _pass_of(self, op: Op) -> int:
        return PHASES.index(op.phase) + (op.phase == "update") if op.id not in self.graph.in_flight.late else 2

    def _list_edge_columns(self) -> Iterator[int]:
        """Yield the pass in which each edge moves its value: with the next op that runs, in the order of the steps."""
        listed, passes = self.question.with_clones.listed, []
        now = 3
        for step in reversed(listed):
            now = self._pass_of(self.graph.ops[step.op]) if isinstance(step, Execute) else now
            passes.append(now)
        yield from (now for now, step in zip(reversed(passes), listed, strict=True) if isinstance(step, Share | Read))

    @cached_property
    def _to_come(self) -> Integers:
        """The most that the variables after each one use, `[variables, steps]`."""
        most = np.zeros((len(self.variables) + 1, self.steps), np.int64)
        for number in reversed(range(len(self.variables))):
            node, row = self.question.problem.nodes[number], np.zeros(PARTS + self.steps, np.int64)
            self._use(row, *node.interval, node.usage.max())
            if (more := node.more_usage) is not None:
                for start, stop, usage in zip(more.start, more.stop, more.usage, strict=True):
                    self._use(row, int(start), int(stop), usage.max())
            for edge, _ in self.edges[number]:
                for usage in edge.usages:
                    self._use(row, usage.start, usage.stop, usage.matrix.max())
            most[number] = most[number + 1] + row[PARTS:]
        return most[1:]

    def _select_best(self, rows: Integers, groups: Integers, number: int) -> NDArray[np.intp]:
        """Return which rows are within the limit and equalled or beaten by no other of their group.

        Usage that cannot matter is set to zero.
        """
        left = np.arange(len(rows))
        if self.limit_bytes is not None:
            used = rows[:, PARTS:]
            left = np.flatnonzero((used <= self.limit_bytes).all(axis=1))
            used[used + self._to_come[number] <= self.limit_bytes] = 0
        left = left[np.lexsort((rows[left].sum(axis=1), groups[left]))]
        best: list[NDArray[np.intp]] = [left[:0]]
        while len(left):  # no other row beats the first of a group, whose sum is the least
            first = np.flatnonzero(np.diff(groups[left], prepend=-1))
            best.append(left[first])
            of_each = np.repeat(left[first], np.diff(first, append=len(left)))
            left = left[(rows[left] < rows[of_each]).any(axis=1)]
        return np.concatenate(best)


def _number_rows(rows: Integers) -> tuple[Integers, Integers]:
    """Return the different rows of a matrix of small numbers, and which of them each row is."""
    numbers, count = np.zeros(len(rows), np.int64), 1
    for column in rows.T:
        size = int(column.max(initial=0)) + 1
        if count * size >= 1 << 62:
            different, numbers = np.unique(numbers, return_inverse=True)
            count = len(different)
        numbers, count = numbers * size + column, count * size
    _, places, which = np.unique(numbers, return_index=True, return_inverse=True)
    return rows[places], which
