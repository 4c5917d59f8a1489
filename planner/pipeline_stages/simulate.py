"""Exact simulation of a schedule: when each task of a step begins and ends.

A task begins when its rank has ended the task before it in the schedule's order, and what it reads has arrived: a
forward pass reads what the stage before sent, a backward pass what the stage after sent (on the last stage, its own
forward pass), a pass for parameters what its backward pass left. A send takes its time after the task, beside what
either rank computes. The update of a rank follows its last task. Gradients of tied parameters are exchanged while it
runs: first it computes what is sent, last it computes what needs that which arrives. All of this is one acyclic graph
of tasks, whose longest path is the length of the step: it never falls where a time grows.

The *bubble* is the share of the ranks' time, up to the end of the step, in which they compute nothing. With p equal
stages, m micro-batches and no time for sends and updates it is (p-1)/(m+p-1) for gpipe and 1f1b; with v virtual stages
interleaved takes (p-1)/(v m) longer than without bubble; zb-h1, with three passes of equal length, a third of what
1f1b takes longer. Times are integers (ps), so that these formulas come out exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from planner.pipeline_stages.schedules import Pass, PipelineSchedule, Task
from planner.pipeline_stages.task_graph import build_task_graph


@dataclass(frozen=True, slots=True)
class StageTimes:
    """The times of one stage, in ps, of one micro-batch except for the update.

    backward_ps          of the gradients of the stage's input and, in a schedule that does not split them, parameters
    weight_ps            of the gradients of its parameters
    send_forward_ps      of sending its result to the next stage
    send_backward_ps     of sending the gradient of its input to the stage before
    """

    forward_ps: int
    backward_ps: int
    weight_ps: int = 0
    update_ps: int = 0
    send_forward_ps: int = 0
    send_backward_ps: int = 0

    @property
    def pass_ps(self) -> int:
        """The time of all passes of one micro-batch."""
        return self.forward_ps + self.backward_ps + self.weight_ps

    def task_ps(self, kind: Pass, *, is_split: bool) -> int:
        if kind is Pass.FORWARD:
            return self.forward_ps
        if kind is Pass.WEIGHT:
            return self.weight_ps
        return self.backward_ps + (0 if is_split else self.weight_ps)


class TimedTask(NamedTuple):
    """A task with the time at which it begins and ends, in ps from the start of the step."""

    task: Task
    begin_ps: int
    end_ps: int


class SumExchange(NamedTuple):
    """The gradient of a tied parameter that stage `source` sends to stage `target` in the update; times in ps.

    first_ps  what the update of the source takes until the gradient is ready
    last_ps   what the update of the target takes after it has arrived
    """

    source: int
    target: int
    first_ps: int
    send_ps: int
    last_ps: int


@dataclass(frozen=True)
class Timeline:
    """The tasks of each rank in time, and the end of each rank's update."""

    schedule: PipelineSchedule
    times: tuple[StageTimes, ...]
    ranks: tuple[tuple[TimedTask, ...], ...]
    exchanges: tuple[SumExchange, ...] = ()

    @cached_property
    def update_ends_ps(self) -> tuple[int, ...]:
        """The end of each rank's update: of all its stages first what is sent, then the rest of one after the other."""
        first, last = [0] * len(self.times), [0] * len(self.times)
        for each in self.exchanges:
            first[each.source] = max(first[each.source], each.first_ps)
            last[each.target] = max(last[each.target], each.last_ps)
        now = [done[-1].end_ps for done in self.ranks]
        ready = []
        for stage, before in enumerate(first):
            now[stage % self.schedule.ranks] += before
            ready.append(now[stage % self.schedule.ranks])
        for stage, times in enumerate(self.times):
            rank = stage % self.schedule.ranks
            arrives = (ready[each.source] + each.send_ps for each in self.exchanges if each.target == stage)
            middle = now[rank] + times.update_ps - first[stage] - last[stage]
            now[rank] = max((middle, *arrives)) + last[stage]
        return tuple(now)

    @property
    def step_ps(self) -> int:
        return max(self.update_ends_ps)

    @cached_property
    def work_ps(self) -> tuple[int, ...]:
        """What the passes of all micro-batches and the update of each stage take."""
        return tuple(each.pass_ps * self.schedule.microbatches + each.update_ps for each in self.times)

    @property
    def busy_ps(self) -> int:
        """The time in which ranks compute, of all ranks together."""
        return sum(self.work_ps)

    @property
    def bubble(self) -> float:
        """The share of the ranks' time in which they compute nothing."""
        return 1 - self.busy_ps / (self.schedule.ranks * self.step_ps) if self.step_ps else 0.0


def simulate(
    schedule: PipelineSchedule, times: Sequence[StageTimes], exchanges: Sequence[SumExchange] = ()
) -> Timeline:
    """Return when each task of a step runs; `times`: of each stage."""
    graph, is_split = build_task_graph(schedule), schedule.is_split
    durations = {kind: [one.task_ps(kind, is_split=is_split) for one in times] for kind in Pass}
    sends = {
        Pass.FORWARD: [0, *(one.send_forward_ps for one in times[:-1])],
        Pass.BACKWARD: [*(one.send_backward_ps for one in times[1:]), 0],
        Pass.WEIGHT: [0] * len(times),
    }
    ends = [0] * (len(graph.tasks) + 1)  # the last one, of no task, stays 0
    done: list[list[TimedTask]] = [[] for _ in range(schedule.ranks)]
    for number, (task, before, source) in enumerate(zip(graph.tasks, graph.previous, graph.source, strict=True)):
        begin = max(ends[before], ends[source] + sends[task.kind][task.stage])
        ends[number] = end = begin + durations[task.kind][task.stage]
        done[task.stage % schedule.ranks].append(TimedTask(task, begin, end))
    return Timeline(schedule, tuple(times), tuple(map(tuple, done)), tuple(exchanges))
