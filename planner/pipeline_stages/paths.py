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

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from planner.pipeline_stages.schedules import Pass, PipelineSchedule
from planner.pipeline_stages.simulate import StageTimes, simulate, trace_path

PathPart = Literal["passes", "through", "forward"]


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


def list_paths(schedule: PipelineSchedule) -> list[StagePath]:
    """Return two paths for each stage."""
    paths, scale = [], 4 * schedule.microbatches * schedule.stages
    for stage in range(schedule.stages):
        times = [StageTimes(*(3 * (scale + (other == stage)),) * 3) for other in range(schedule.stages)]
        timeline = simulate(schedule, times)
        for rank in {0, stage % schedule.ranks}:
            met = Counter((task.stage, task.kind) for task in trace_path(timeline, rank))
            counts = [_count_passes(schedule, met, other) for other in range(schedule.stages)]
            sides = [counts[:stage], counts[stage : stage + 1], counts[stage + 1 :]]
            passes, through, forward = (
                tuple(min((count[n] for count in side), default=0) for side in sides) for n in range(3)
            )
            ends = stage % schedule.ranks == rank
            paths.append(StagePath(stage, passes, through, forward, ends))  # type: ignore[arg-type]
    return paths


def _count_passes(schedule: PipelineSchedule, met: Counter[tuple[int, Pass]], stage: int) -> tuple[int, int, int]:
    """Return how often a path meets all passes of a stage; beyond that, forward and backward, and forward only."""
    forward = met[stage, Pass.FORWARD]
    both = min(forward, met[stage, Pass.BACKWARD])
    whole = min(both, met[stage, Pass.WEIGHT]) if schedule.is_split else both
    return whole, both - whole, forward - both
