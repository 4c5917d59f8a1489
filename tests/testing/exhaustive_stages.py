"""An oracle of pipelines: the least step over all partitions, schedules and choices of layouts, sends included.

The choices of all stages (`tests.testing.stage_choices`) are combined and timed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

import numpy as np

from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.ir.graph import Graph
from planner.ir.sharding import Sharding
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.pipeline_plan import number_devices
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.schedules import Pass, PipelineSchedule, Task
from planner.pipeline_stages.stage_graph import StageGraph, extract_stage
from planner.planning.plan_types import Request
from planner.reshard.cross_mesh import PlacedSharding
from planner.reshard.cross_mesh_cost import CrossMeshReshard
from tests.testing.random_trainings import random_training
from tests.testing.stage_choices import Integers, StageChoices, StageListing, TooManyChoices

MAX_STEPS = 10_000_000
"""Of more steps of a partition, timing them takes minutes."""
KINDS = (Pass.FORWARD, Pass.BACKWARD, Pass.WEIGHT)


@dataclass
class ExhaustiveStages:
    """All pipelines of a training step, in ranks of one stage each.

    models       of each rank, or one for all
    is_separate  whether each stage has the least time of its own passes and update, whatever sends take
    is_worst     whether of the choices of a partition the longest step counts
    """

    graph: Graph
    models: Sequence[CostModel]
    limit_bytes: int | None = None
    is_separate: bool = False
    is_worst: bool = False
    known: dict[object, StageChoices] = field(default_factory=dict)
    sends: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.units = find_units(self.graph)

    def find_least_step(self, schedule: PipelineSchedule) -> float:
        """Return the least step of a schedule in ps, over all partitions; infinite where none fits."""
        least = np.inf
        for inner in combinations(range(1, self.units.count), schedule.stages - 1):
            spans = list(pairwise((0, *inner, self.units.count)))
            stages = [extract_stage(self.units, *span) for span in spans]
            listed = [self.list_choices(schedule, number, stage) for number, stage in enumerate(stages)]
            least = min(least, self._time(schedule, stages, listed, np.inf if self.is_worst else least))
        return least

    def list_choices(self, schedule: PipelineSchedule, number: int, stage: StageGraph) -> StageChoices:
        """Return the choices of a stage; what is in flight matters where memory is limited."""
        held = (0, 0) if self.limit_bytes is None else schedule.others_in_flight(number)
        model = self.models[number % len(self.models)]
        key = stage.first, stage.last, held, schedule.is_split, schedule.microbatches, model.mesh
        if key not in self.known:
            step = stage.make_step(schedule.microbatches, held, is_split=schedule.is_split)
            self.known[key] = StageListing(stage, formulate(step, model), self.limit_bytes).run()
        choices = self.known[key]
        work = choices.work(schedule.microbatches)
        return choices.select(np.flatnonzero(work == work.min())) if self.is_separate and work.size else choices

    def _time(
        self, schedule: PipelineSchedule, stages: list[StageGraph], listed: list[StageChoices], least: float
    ) -> float:
        """Return the least step of a partition, or a larger number where it is not below `least`.

        A step takes at least as long as the work of any stage, and one micro-batch through all of them.
        """
        listed = [each.select(np.flatnonzero(each.work(schedule.microbatches) < least)) for each in listed]
        if not all(len(each.times) for each in listed):
            return np.inf
        if math.prod(len(each.times) for each in listed) > MAX_STEPS:
            raise TooManyChoices
        tables = [self._send_tables(schedule, stages, listed, number) for number in range(len(stages) - 1)]
        first, *others = listed
        steps: list[float] = []
        for row in range(len(first.times)):
            rows = np.indices([1, *(len(each.times) for each in others)]).reshape(len(listed), -1)
            rows[0] = row
            times = [each.times[at] for each, at in zip(listed, rows, strict=True)]
            which = [each.which[at] for each, at in zip(listed, rows, strict=True)]
            sent = [(up[a, b], down[a, b]) for (up, down), a, b in zip(tables, which, which[1:], strict=False)]
            steps.append(int((np.max if self.is_worst else np.min)(time_steps(schedule, times, sent))))
        return float((max if self.is_worst else min)(steps))

    def _send_tables(
        self, schedule: PipelineSchedule, stages: list[StageGraph], listed: list[StageChoices], number: int
    ) -> tuple[Integers, Integers]:
        """Return the times of all that is sent up from a stage to the next and down again, by the layouts of both."""
        one, other = listed[number], listed[number + 1]
        ways = (stages[number].sent, (number, number + 1)), (stages[number + 1].sent_gradients, (number + 1, number))
        up, down = (
            np.array(
                [
                    [
                        sum(self._send_ps(schedule, v, ends, {number: a, number + 1: b}) for v in values)
                        for b in other.layouts
                    ]
                    for a in one.layouts
                ]
            )
            for values, ends in ways
        )
        return up, down

    def _send_ps(
        self, schedule: PipelineSchedule, value: str, ends: tuple[int, int], layouts: dict[int, dict[str, Sharding]]
    ) -> int:
        ranks = [end % schedule.ranks for end in ends]
        meshes = [self.models[rank % len(self.models)].mesh for rank in range(schedule.ranks)]
        key = value, *(layouts[end][value] for end in ends), *ranks
        if key not in self.sends:
            placed = [
                PlacedSharding(layouts[end][value], meshes[rank], number_devices(meshes, rank))
                for end, rank in zip(ends, ranks, strict=True)
            ]
            kind = self.graph.types[value]
            self.sends[key] = CrossMeshReshard(placed[0], placed[1], kind, self.models[0].hardware).time_ps
        return self.sends[key]


def time_steps(
    schedule: PipelineSchedule, times: Sequence[Integers], sent: Sequence[tuple[Integers, Integers]]
) -> Integers:
    """Return the length of each of several steps, `[steps]`: the longest path through the tasks.

    times  of each stage, `[steps, 4]`
    sent   of all that each stage sends to the next one, and of what comes back
    """
    ends: dict[Task, Integers] = {}
    orders = [schedule.order_tasks(rank) for rank in range(schedule.ranks)]
    done, now = [0] * schedule.ranks, [np.zeros(len(times[0]), np.int64) for _ in orders]
    while any(count < len(order) for count, order in zip(done, orders, strict=True)):
        for rank, order in enumerate(orders):
            if done[rank] == len(order):
                continue
            task = order[done[rank]]
            ready = _arrival(schedule, task, ends, sent)
            if ready is not None:
                now[rank] = ends[task] = np.maximum(now[rank], ready) + _duration(schedule, task, times)
                done[rank] += 1
    for stage, own in enumerate(times):
        now[stage % schedule.ranks] = now[stage % schedule.ranks] + own[:, 3]
    latest: Integers = np.max(now, axis=0)
    return latest


def _duration(schedule: PipelineSchedule, task: Task, times: Sequence[Integers]) -> Integers:
    own = times[task.stage]
    both: Integers = own[:, 1] + own[:, 2]
    return own[:, 0] if task.kind is Pass.FORWARD else both if not schedule.is_split else own[:, KINDS.index(task.kind)]


def _arrival(
    schedule: PipelineSchedule, task: Task, ends: dict[Task, Integers], sent: Sequence[tuple[Integers, Integers]]
) -> Integers | int | None:
    """Return when what a task reads is there, or None where it is not known yet."""
    stage, send = task.stage, np.zeros(1, np.int64)
    if task.kind is Pass.FORWARD and not stage:
        return 0
    if task.kind is Pass.FORWARD:
        source, send = task._replace(stage=stage - 1), sent[stage - 1][0]
    elif task.kind is Pass.WEIGHT:
        source = task._replace(kind=Pass.BACKWARD)
    elif stage + 1 < schedule.stages:
        source, send = task._replace(stage=stage + 1), sent[stage][1]
    else:
        source = task._replace(kind=Pass.FORWARD)
    return ends[source] + send if source in ends else None


@dataclass(frozen=True)
class StageComparison:
    """A step that was planned, and what trying everything finds; times in ps, infinite where nothing fits.

    least_ps     of all choices
    separate_ps  of those in which each stage has the least time of its own passes and update: with the best choice of
                 those that are equal in this, and with the worst, which differ in what sends take
    """

    schedule: str
    microbatches: int
    units: int
    limit_bytes: int | None
    step_ps: float
    bound_ps: float
    least_ps: float
    separate_ps: tuple[float, float]

    @property
    def is_fitting(self) -> bool:
        return self.step_ps < np.inf

    @property
    def is_separate(self) -> bool:
        """Whether the step is no longer than that of the best partition into stages that each take the least time.

        Stages that receive in parts may take longer for their own work, and less for what is sent.
        """
        return self.step_ps <= self.separate_ps[1]

    @property
    def above(self) -> float:
        """The share by which the step is longer than the least of all."""
        return self.step_ps / self.least_ps - 1 if self.is_fitting else 0.0


def compare_stages(seed: int, models: Sequence[CostModel]) -> list[StageComparison]:
    """Plan a random training step in two stages in each schedule and compare the step with all others.

    models  of both ranks, or one for both

    Every other seed has a memory limit, and every third step has three layers; where there are too many choices to
    list, it has two, or no limit.
    """
    for units, is_limited in ((2 if seed % 3 else 3, seed % 2 == 1), (2, seed % 2 == 1), (2, False)):
        with suppress(TooManyChoices):
            return list(_compare_step(seed, models, units, is_limited=is_limited))
    raise TooManyChoices


def _compare_step(seed: int, models: Sequence[CostModel], units: int, *, is_limited: bool) -> Iterator[StageComparison]:
    random = np.random.default_rng(seed)
    microbatches, graph = int(random.integers(1, 6)), random_training(seed, units)
    held = sum(kind.bytes for kind in graph.types.values())
    limit = int(random.uniform(0.2, 1.0) * held) if is_limited else None
    everything = ExhaustiveStages(graph, models, limit)
    separate = [replace(everything, is_separate=True, is_worst=is_worst) for is_worst in (False, True)]
    for name in ("1f1b", "gpipe", "zb-h1"):
        meshes = None if len(models) == 1 else tuple(model.mesh for model in models)
        schedule, request = PipelineSchedule(name, 2, microbatches), PipelineRequest(2, name, meshes=meshes)
        asked = Request(limit, microbatches=microbatches, gap=0.0)
        plan = plan_pipeline(graph, models[0].mesh, models[0].hardware, pipeline=request, request=asked)
        times = plan.certificate.objective_s, plan.certificate.bound_s
        step_ps, bound_ps = (np.inf if each is None else round(each / PICO) for each in times)
        least, best, worst = (each.find_least_step(schedule) for each in (everything, *separate))
        yield StageComparison(name, microbatches, units, limit, step_ps, bound_ps, least, (best, worst))
