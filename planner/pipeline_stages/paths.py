"""Lower bounds of a step from paths through its tasks.

A step takes at least as long as the tasks on any path of its graph (`planner.pipeline_stages.simulate`), whatever their
times are. A path that meets the passes of stage j n_j times each takes at least n_j P_j there, where P_j bounds the
passes of one micro-batch from below. Where it ends with the update of stage e, which it meets n_e <= m times, it takes
at least n_e S_e / m there: S_e bounds the stage's own work in the step, m times its passes and its update, from below,
and a part of the passes takes no less than that part of all.

Which path says most depends on the stage that is the slowest. So for each stage e the path is taken that is the longest
where stage e is a little slower than all others, once to the end of its own rank and once to the end of the first rank.
With e the last stage and no time for updates this is the sum of all stages' passes and m - 1 times those of the last.

A stage may take less for its passes where it takes more for its update, which a path to the end of another rank does
not meet. So the mean of both paths counts too, with weight 1/K for the one that ends in the stage: of stage e it meets
passes and a K-th of the update, which take at least a K-th of the step of K m micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.task_graph import Floats, Integers, build_task_graph

PathPart = Literal["passes", "through", "forward"]


MAX_TASKS = 20_000_000
"""Tasks on all stages' paths that are simulated within seconds."""


@dataclass(frozen=True, slots=True)
class StagePath:
    """A path by what it meets: passes of stage `stage`, of each stage before it and of each stage after it.

    passes         how often all passes of a micro-batch are met: before, in and after the stage
    through        how often forward and backward pass are met without that for parameters
    forward        how often the forward pass is met without a backward pass
    ends_in_stage  whether the path ends with the update of the stage; else it ends with that of stage 0
    """

    stage: int
    passes: tuple[int, int, int]
    through: tuple[int, int, int]
    forward: tuple[int, int, int]
    ends_in_stage: bool

    @property
    def meets(self) -> tuple[tuple[PathPart, tuple[int, int, int]], ...]:
        return ("passes", self.passes), ("through", self.through), ("forward", self.forward)


def has_long_paths(schedule: PipelineSchedule) -> bool:
    """Return whether finding the paths of a schedule takes so long that a limited time is better spent otherwise."""
    return schedule.stages**2 * schedule.microbatches > MAX_TASKS


def list_paths(schedule: PipelineSchedule) -> list[StagePath]:
    """Return two paths for each stage."""
    kinds = np.array([1.0, 1.0, 1.0] if schedule.is_split else [1.0, 2.0])
    times = np.repeat(kinds[:, None] * _parts_of(schedule), schedule.stages, axis=1)
    traced = trace_slower(schedule, times, [[stage] for stage in range(schedule.stages)])
    return [_make_path(schedule, one, stage) for stage, one in traced]


class TracedPath(NamedTuple):
    """How often a path meets the tasks of each kind and stage, `[kinds, stages]`, and the rank in whose end it ends."""

    met: Integers
    rank: int


def trace_slower(
    schedule: PipelineSchedule, times: Floats, groups: Sequence[Sequence[int]]
) -> list[tuple[int, TracedPath]]:
    """Return the longest paths where the stages of a group are a little slower, with the number of the group.

    They are those to the end of its rank, and to the end of rank 0.

    times   of the tasks of each kind and stage, `[kinds, stages]`, without the last kind where that is not split
    groups  stages of one rank each
    """
    ends = [(n, rank) for n, group in enumerate(groups) for rank in sorted({0, group[0] % schedule.ranks})]
    varied = np.repeat(times[None], len(ends), axis=0)
    for one, (number, _) in zip(varied, ends, strict=True):
        one[:, groups[number]] += one[:, groups[number]] / _parts_of(schedule)
    met = build_task_graph(schedule).trace_paths(varied, np.array([rank for _, rank in ends]))
    return [(number, TracedPath(one, rank)) for one, (number, rank) in zip(met, ends, strict=True)]


def _parts_of(schedule: PipelineSchedule) -> int:
    """Return the part by which a slower stage takes longer: less than a pass in all of the step."""
    return 4 * schedule.microbatches * schedule.stages


def _make_path(schedule: PipelineSchedule, traced: TracedPath, stage: int) -> StagePath:
    passes, through, forward = (_least_by_side(part, stage) for part in split_parts(traced.met))
    return StagePath(stage, passes, through, forward, stage % schedule.ranks == traced.rank)


def _least_by_side(met: Integers, stage: int) -> tuple[int, int, int]:
    before, after = met[:stage], met[stage + 1 :]
    return int(before.min()) if before.size else 0, int(met[stage]), int(after.min()) if after.size else 0


def split_parts(met: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return how often all passes of each stage are met; beyond that, forward and backward; and forward only.

    met  the tasks of each kind and stage, `[kinds, stages]`
    """
    whole, both = met.min(axis=0), met[:2].min(axis=0)
    return whole, both - whole, met[0] - both
