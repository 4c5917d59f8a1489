"""Schedules of a pipeline: the order in which each rank runs its tasks.

A pipeline has `ranks` ranks, each with the devices of one stage at a time. Stage s runs on rank s mod ranks, so that
with `chunks` virtual stages a rank holds the stages s, s + ranks, ... Each stage runs a forward pass of every
micro-batch, a backward pass that computes the gradient of its input, and a pass that computes those of its parameters.

gpipe        all forward passes, then all backward passes (Huang et al., "GPipe", NeurIPS 2019)
1f1b         forward passes until the first micro-batch comes back, then one backward pass after each forward pass
             (Narayanan et al., "PipeDream", SOSP 2019; with one update a step: Fan et al., "DAPPLE", PPoPP 2021)
interleaved  1f1b over the stages of each rank, in groups of as many micro-batches as ranks (Narayanan et al.,
             "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021)
zb-h1        1f1b whose passes for parameters are apart and run later, rank r's r micro-batches behind its backward
             passes, where they fill what would be idle (Qi et al., "Zero bubble pipeline parallelism", ICLR 2024)

The first three run the pass for parameters at once with the backward pass, as one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, get_args

from planner.errors import InvalidRequest

ScheduleName = Literal["gpipe", "1f1b", "interleaved", "zb-h1"]
SCHEDULE_NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)


class Pass(Enum):
    """What a task computes; `BACKWARD` includes `WEIGHT` in schedules that do not split the two."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHT = "weight"


class Task(NamedTuple):
    """One pass of one micro-batch through one stage."""

    kind: Pass
    stage: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class PipelineSchedule:
    """The order of the tasks of a step on every rank.

    Raises InvalidRequest for chunks of a schedule that has one, and for micro-batches that `interleaved` cannot group.
    """

    name: ScheduleName
    ranks: int
    microbatches: int
    chunks: int = 1

    def __post_init__(self) -> None:
        if self.name not in SCHEDULE_NAMES:
            raise InvalidRequest("schedule", got=self.name, wanted=f"one of {', '.join(SCHEDULE_NAMES)}")
        for what in ("ranks", "microbatches", "chunks"):
            if getattr(self, what) < 1:
                raise InvalidRequest(f"{what} of a schedule", got=getattr(self, what), wanted="1 or more")
        if self.name != "interleaved" and self.chunks > 1:
            raise InvalidRequest("virtual stages", got=f"{self.chunks} with {self.name}", wanted="1, or interleaved")
        if self.name == "interleaved" and (self.chunks < 2 or self.ranks < 2):
            got = f"{self.chunks} on each of {self.ranks} ranks"
            raise InvalidRequest("virtual stages of interleaved", got=got, wanted="2 or more, on 2 ranks or more")
        if self.name == "interleaved" and self.microbatches % self.ranks:
            wanted = f"a multiple of the {self.ranks} ranks"
            raise InvalidRequest("micro-batches of interleaved", got=self.microbatches, wanted=wanted)

    @property
    def stages(self) -> int:
        return self.ranks * self.chunks

    @property
    def is_split(self) -> bool:
        """Whether gradients of parameters are computed in tasks of their own."""
        return self.name == "zb-h1"

    @property
    def bubble_overhead(self) -> float:
        """What equal stages take longer than their work, as a share of it (`planner.pipeline_stages.simulate`).

        The bubble of a timeline is a share of the step instead.
        """
        return (self.ranks - 1) / (self.microbatches * self.chunks * (3 if self.is_split else 1))

    def order_tasks(self, rank: int) -> list[Task]:
        """Return the tasks of a rank in the order in which it runs them."""
        return list(_ORDERS[self.name](self, rank))

    def count_in_flight(self, rank: int) -> list[tuple[int, ...]]:
        """Return, for each task of a rank, the micro-batches whose activations each chunk holds while it runs.

        They are held from the forward pass to the last pass that reads them, both included.
        """
        last = Pass.WEIGHT if self.is_split else Pass.BACKWARD
        held, counts = [0] * self.chunks, []
        for task in self.order_tasks(rank):
            chunk = task.stage // self.ranks
            held[chunk] += task.kind is Pass.FORWARD
            counts.append(tuple(held))
            held[chunk] -= task.kind is last
        return counts

    def others_in_flight(self, stage: int) -> tuple[int, int]:
        """Return for how many other micro-batches a stage holds activations while one runs, at most.

        Those between their forward and their backward pass, and those between their backward pass and that for
        parameters where it is apart.
        """
        waiting, most = {Pass.FORWARD: 0, Pass.BACKWARD: 0}, (0, 0)
        for task in self.order_tasks(stage % self.ranks):
            if task.stage != stage:
                continue
            if task.kind is not Pass.FORWARD:
                waiting[Pass.FORWARD if task.kind is Pass.BACKWARD else Pass.BACKWARD] -= 1
            most = max(most[0], waiting[Pass.FORWARD]), max(most[1], waiting[Pass.BACKWARD])
            if task.kind is Pass.FORWARD or (task.kind is Pass.BACKWARD and self.is_split):
                waiting[task.kind] += 1
        return most

    def peak_in_flight(self, stage: int) -> int:
        """Return the largest number of micro-batches whose activations a stage holds at once."""
        return max(counts[stage // self.ranks] for counts in self.count_in_flight(stage % self.ranks))


def _order_gpipe(schedule: PipelineSchedule, rank: int) -> Iterator[Task]:
    yield from (Task(Pass.FORWARD, rank, number) for number in range(schedule.microbatches))
    yield from (Task(Pass.BACKWARD, rank, number) for number in range(schedule.microbatches))


def _order_1f1b(schedule: PipelineSchedule, rank: int) -> Iterator[Task]:
    warm_up = schedule.ranks - 1 - rank
    forward = [Task(Pass.FORWARD, rank, number) for number in range(schedule.microbatches)]
    backward = [Task(Pass.BACKWARD, rank, number) for number in range(schedule.microbatches)]
    return _alternate(forward, backward, warm_up)


def _order_interleaved(schedule: PipelineSchedule, rank: int) -> Iterator[Task]:
    group, chunks = schedule.ranks, schedule.chunks
    warm_up = 2 * (group - 1 - rank) + (chunks - 1) * group
    forward, backward = [], []
    for first in range(0, schedule.microbatches, group):
        for chunk in range(chunks):
            for number in range(first, first + group):
                forward.append(Task(Pass.FORWARD, rank + group * chunk, number))
                backward.append(Task(Pass.BACKWARD, rank + group * (chunks - 1 - chunk), number))
    return _alternate(forward, backward, warm_up)


def _order_zero_bubble(schedule: PipelineSchedule, rank: int) -> Iterator[Task]:
    waiting: list[Task] = []
    for task in _order_1f1b(schedule, rank):
        yield task
        if task.kind is Pass.BACKWARD:
            waiting.append(task._replace(kind=Pass.WEIGHT))
            if len(waiting) > rank:
                yield waiting.pop(0)
    yield from waiting


def _alternate(forward: list[Task], backward: list[Task], warm_up: int) -> Iterator[Task]:
    """Yield so many forward tasks, then one forward and one backward task in turn, then the backward tasks left."""
    ahead = min(warm_up, len(forward))
    yield from forward[:ahead]
    for number, task in enumerate(forward[ahead:]):
        yield task
        yield backward[number]
    yield from backward[len(forward) - ahead :]


_ORDERS: dict[ScheduleName, Callable[[PipelineSchedule, int], Iterator[Task]]] = {
    "gpipe": _order_gpipe,
    "1f1b": _order_1f1b,
    "interleaved": _order_interleaved,
    "zb-h1": _order_zero_bubble,
}
