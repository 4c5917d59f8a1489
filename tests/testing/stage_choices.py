"""The choices of layouts of a pipeline stage that may be best, listed one variable after the other.

Of those that agree in what is still to be decided with, and in the layouts that the stage exchanges, the ones are kept
that no other is as good as in every pass, the update and the memory of what is to come. What a stage sends has a layout
that is there when the pass ends that computes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

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
Key = tuple[int, ...]
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
        self.added: dict[Key, Integers | None] = {}
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
        states: dict[Key, Integers] = {(): np.zeros((1, PARTS + self.steps), np.int64)}
        kept: list[int] = []
        for number, variable in enumerate(self.variables):
            after = [k for k in (*kept, number) if last[k] > number or k in self.exchanged]
            reached: dict[Key, list[Integers]] = {}
            for (key, rows), strategy in product(states.items(), range(len(variable.costs))):
                at = dict(zip(kept, key, strict=True)) | {number: strategy}
                near = number, *(at[k] for k in self.near[number])
                if near not in self.added:
                    self.added[near] = self._add(at, number)
                if (added := self.added[near]) is not None:
                    reached.setdefault(tuple(at[k] for k in after), []).append(rows + added)
            counts = [sum(map(len, listed)) for listed in reached.values()]
            if max(counts, default=0) > MAX_ROWS or sum(counts) * (PARTS + self.steps) > MAX_NUMBERS:
                raise TooManyChoices
            pruned = {key: self._prune(np.concatenate(listed), number) for key, listed in reached.items()}
            states, kept = {key: rows for key, rows in pruned.items() if len(rows)}, after
        named = [dict(zip(kept, key, strict=True)) for key in states]
        layouts = [{v: self._layout(n, at[n]) for n, v in self.exchanged.items()} for at in named]
        times = np.concatenate([np.zeros((0, PARTS), np.int64), *(rows[:, :PARTS] for rows in states.values())])
        times[:, :3] //= self.graph.microbatches
        return StageChoices(times, layouts, np.repeat(np.arange(len(states)), list(map(len, states.values()))))

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

    def _prune(self, rows: Integers, number: int) -> Integers:
        """Return the rows within the limit that no other equals or beats; usage that cannot matter is set to zero."""
        if self.limit_bytes is not None:
            rows = rows[(rows[:, PARTS:] <= self.limit_bytes).all(axis=1)]
            used = rows[:, PARTS:]
            rows[:, PARTS:] = np.where(used + self._to_come[number] > self.limit_bytes, used, 0)
        if len(rows) < 2:
            return rows
        kept = np.ones(len(rows), bool)
        for place, row in enumerate(rows):
            if kept[place]:
                kept &= ~(rows >= row).all(axis=1)
                kept[place] = True
        return rows[kept]
