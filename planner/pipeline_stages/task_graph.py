"""The tasks of a step as a graph: which task waits for which, and the longest paths through them.

A task waits for the task before it on its rank, and for its source, whose result it reads: a forward pass for that of
the stage before, a backward pass for that of the stage after (on the last stage, for its own forward pass), a pass for
parameters for its backward pass. Paths of many times are found at once, level by level: the tasks of a level wait for
those of lower levels only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.pipeline_stages.schedules import Pass, PipelineSchedule, Task

KINDS = tuple(Pass)
BLOCK = 1 << 24
"""Ends of tasks that are held at once while paths are found."""
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of a step in an order in which each comes after those that it waits for.

    previous  the number of the task before it on its rank; -1: none
    source    the number of its source; -1: none
    last      the number of each rank's last task
    """

    schedule: PipelineSchedule
    tasks: tuple[Task, ...]
    previous: tuple[int, ...]
    source: tuple[int, ...]
    last: tuple[int, ...]

    def trace_paths(self, times: Floats, ranks: Integers) -> Integers:
        """Return how often the longest path of each of several steps meets the tasks of each kind and stage.

        times    of the tasks, `[paths, kinds, stages]`, whole numbers where equal paths are to be found equal
        ranks    that at whose last task each path ends, `[paths]`

        Of equal paths it is the one that comes from sources rather than from tasks before on the same rank.
        """
        size = max(1, BLOCK // len(self.tasks))
        blocks = range(0, len(times), size)
        return np.concatenate([self._trace_block(times[n : n + size], ranks[n : n + size]) for n in blocks])

    def _trace_block(self, times: Floats, ranks: Integers) -> Integers:
        columns = np.arange(len(times))
        by_task = times.reshape(len(times), -1).T
        kind, previous, source, place = self._by_level
        ends = np.zeros((len(kind) + 1, len(times)))  # the last row, of no task, stays 0
        is_from_source = np.zeros(ends.shape, bool)
        for begin, end in self._levels:
            rows = slice(begin, end)
            before, arrives = ends[previous[rows]], ends[source[rows]]
            is_from_source[rows] = (arrives >= before) & (source[rows] >= 0)[:, None]
            ends[rows] = np.maximum(before, arrives) + by_task[kind[rows]]
        met = np.zeros((len(times), by_task.shape[0]), np.int64)
        now = place[np.array(self.last)[ranks]]
        while len(columns):
            met[columns, kind[now]] += 1
            now = np.where(is_from_source[now, columns], source[now], previous[now])
            columns, now = columns[now >= 0], now[now >= 0]
        return met.reshape(times.shape)

    @cached_property
    def _depths(self) -> list[int]:
        """The level of each task, from 0."""
        depths = [-1] * (len(self.tasks) + 1)
        for number, (before, source) in enumerate(zip(self.previous, self.source, strict=True)):
            depths[number] = 1 + max(depths[before], depths[source])
        return depths[:-1]

    @cached_property
    def _levels(self) -> list[tuple[int, int]]:
        """The first and last task of each level, among tasks sorted by level."""
        bounds = [0, *np.cumsum(np.bincount(self._depths)).tolist()]
        return list(pairwise(bounds))

    @cached_property
    def _by_level(self) -> tuple[Integers, Integers, Integers, Integers]:
        """Kind and stage as one number, task before and source of the tasks sorted by level, and the place of each."""
        order = np.argsort(np.array(self._depths), kind="stable")
        place = np.full(len(order) + 1, -1)
        place[order] = np.arange(len(order))
        kind = np.array([KINDS.index(task.kind) * self.schedule.stages + task.stage for task in self.tasks])
        return kind[order], place[np.array(self.previous)][order], place[np.array(self.source)][order], place


@lru_cache(maxsize=8)
def build_task_graph(schedule: PipelineSchedule) -> TaskGraph:
    """Return the graph of a schedule's tasks."""
    orders = [schedule.order_tasks(rank) for rank in range(schedule.ranks)]
    numbers: dict[Task, int] = {}
    previous, sources, last, done = list[int](), list[int](), [-1] * schedule.ranks, [0] * schedule.ranks
    ready = list(range(schedule.ranks))
    while ready:
        rank = ready.pop()
        order = orders[rank]
        while done[rank] < len(order):
            task = order[done[rank]]
            source = find_source(schedule, task)
            if source is not None and source not in numbers:
                break
            previous.append(last[rank])
            sources.append(-1 if source is None else numbers[source])
            last[rank] = numbers[task] = len(numbers)
            done[rank] += 1
            ready += [one for one in {(rank + 1) % schedule.ranks, (rank - 1) % schedule.ranks} if one != rank]
    return TaskGraph(schedule, tuple(numbers), tuple(previous), tuple(sources), tuple(last))


def find_source(schedule: PipelineSchedule, task: Task) -> Task | None:
    """Return the task whose result a task reads."""
    kind, stage, microbatch = task
    if kind is Pass.FORWARD:
        return Task(kind, stage - 1, microbatch) if stage else None
    if kind is Pass.WEIGHT:
        return Task(Pass.BACKWARD, stage, microbatch)
    if stage + 1 < schedule.stages:
        return Task(kind, stage + 1, microbatch)
    return Task(Pass.FORWARD, stage, microbatch)
