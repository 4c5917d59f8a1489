"""A mean of paths through a step: the bubble that no partition into stages avoids.

A step takes at least as long as the tasks on any path (`planner.pipeline_stages.paths`), and so at least as long as any
weighted mean of paths, which meets the tasks of stage j a mean number of times. The path that is one rank's tasks meets
these m times, and the mean of all ranks' tells that a step takes a rank's share of all work. Other paths come up to a
rank, leave it for another one and go down again: a mean of them meets each of p stages nearly (m + p - 1)/p times in
1f1b, which are the passes of a stage that fit in a step of equal stages. With v virtual stages on each rank these are
(m + (p - 1)/v)/p, and the mean meets some stages fewer times, as a step of unequal stages can be shorter.

The weights are those whose mean says most where stages have the least times for it: the game between who picks a path
and who shares the time of all passes among stages. `mix_paths` plays it by a linear program that grows with the paths
that are the longest for the times found last. It knows of stages what part of their time is a forward pass and so on,
and how small a stage can be. The weights prove nothing of these: with any weights the bound, which is the least sum
over partitions of what the mean meets of each stage, holds for all partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import solvers
from planner.pipeline_stages.paths import TracedPath, trace_slower
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.task_graph import Floats

MAX_SIZE, SMALL_SIZE = 60_000, 20_000
"""Paths times stages from which on no further paths are looked for; the latter where many schedules are compared."""
MAX_ROUNDS = 100
STEP = 0.15
"""How far from the best times known the times of the linear program are tried, which are extreme at first."""
GAP = 1e-3
"""Share by which the longest path may exceed the mean when the search for weights ends."""


@dataclass(frozen=True, slots=True)
class TimeShares:
    """How stages may share the time of all their passes of one micro-batch, which is 1.

    forward  the least part of a stage's time that is its forward pass
    through  the same of forward and backward pass without that for parameters
    update   the update of a stage, as a multiple of its passes
    least    the least time of each stage
    """

    forward: float
    through: float
    update: float
    least: tuple[float, ...]


@dataclass(frozen=True)
class MixedPath:
    """How often a mean of paths meets the tasks of each kind and stage, `[kinds, stages]`, and each stage's update.

    The update of a stage is met by the paths that end on its rank, as often as their weights say.
    """

    met: Floats
    update: Floats


def mix_ranks(schedule: PipelineSchedule) -> MixedPath:
    """Return the mean of the tasks of each rank."""
    share = 1 / schedule.ranks
    met = np.full((3 if schedule.is_split else 2, schedule.stages), schedule.microbatches * share)
    return MixedPath(met, np.full(schedule.stages, share))


@lru_cache(maxsize=64)
def mix_paths(schedule: PipelineSchedule, shares: TimeShares, size: int = MAX_SIZE) -> MixedPath:
    """Return the mean of paths with the weights that tell most where stages share the time so.

    size  paths times stages from which on no further paths are looked for
    """
    return _PathMixer(schedule, shares, size).run()


@dataclass
class _PathMixer:
    """The paths that are known, and the linear program of the least step that none of them exceeds.

    Its variables are the step and the times of the kinds of tasks and stages, `[kinds, stages]`. In a schedule that
    does not split them, backward pass and pass for parameters are one kind.
    """

    schedule: PipelineSchedule
    shares: TimeShares
    size: int

    def __post_init__(self) -> None:
        stages = self.schedule.stages
        self.paths: dict[tuple[bytes, int], TracedPath] = {}
        self.model = solvers.LinearModel()
        self.step = self.model.add_columns(np.ones(1), np.inf)
        kinds = 3 if self.schedule.is_split else 2
        self.times = self.model.add_columns(np.zeros(kinds * stages), np.inf).reshape(kinds, stages)
        total = self.model.add_rows(np.array([-np.inf]), np.array([-1.0]))
        self.model.add_entries(np.repeat(total, self.times.size), self.times.ravel(), -np.ones(self.times.size))
        self._limit_times(np.array(self.shares.least), kinds=kinds, share=0.0)
        self._limit_times(np.zeros(stages), kinds=1, share=self.shares.forward)
        if self.schedule.is_split:
            self._limit_times(np.zeros(stages), kinds=2, share=self.shares.through)

    def _limit_times(self, least: Floats, *, kinds: int, share: float) -> None:
        """Let the first kinds of each stage take at least a share of its time, and at least `least`."""
        rows = self.model.add_rows(np.full(least.size, -np.inf), -least)
        for kind, columns in enumerate(self.times):
            self.model.add_entries(rows, columns, np.full(least.size, share - (kind < kinds)))

    def run(self) -> MixedPath:
        ranks, stages = range(self.schedule.ranks), range(self.schedule.stages)
        by_rank = [stages[rank :: self.schedule.ranks] for rank in ranks]
        for rank in ranks:
            self._add(self._pass_rank(rank))
        times, best = self._share_equally(), None
        least = self._add_longest(times, [[n] for n in stages] if 2 * len(stages) ** 2 <= self.size else by_rank)
        lp = solvers.IncrementalLp(self.model)
        for _ in range(MAX_ROUNDS):
            solution = lp.solve()
            if solution is None:
                break
            best = np.maximum(-solution.duals[self.model.rows - len(self.paths) :], 0.0)
            if least - solution.cost <= GAP * least or len(self.paths) * len(stages) > self.size:
                break
            tried = times + STEP * (np.maximum(solution.values[1:].reshape(times.shape), 0.0) - times)
            longest = self._add_longest(tried, by_rank)
            times, least = (tried, longest) if longest < least else (times, least)
        return mix_ranks(self.schedule) if best is None or not best.any() else self._mix(best)

    def _share_equally(self) -> Floats:
        """Return the times of equal stages."""
        ends = [self.shares.forward, *([self.shares.through] if self.schedule.is_split else []), 1.0]
        return np.repeat(np.diff(ends, prepend=0.0)[:, None], self.schedule.stages, axis=1) / self.schedule.stages

    def _pass_rank(self, rank: int) -> TracedPath:
        """Return the path that is the tasks of a rank."""
        met = np.zeros(self.times.shape, np.int64)
        met[:, rank :: self.schedule.ranks] = self.schedule.microbatches
        return TracedPath(met, rank)

    def _add_longest(self, times: Floats, groups: Sequence[Sequence[int]]) -> float:
        """Add the longest paths where each group of stages is a little slower, and return the length of the longest."""
        paths = [path for _, path in trace_slower(self.schedule, times, groups)]
        for path in paths:
            self._add(path)
        return max(float((self._weigh(path) * times).sum()) for path in paths)

    def _weigh(self, path: TracedPath) -> Floats:
        """Return what the times of passes are multiplied by in the length of a path, with the update at its end."""
        weights = path.met.astype(float)
        weights[:, path.rank :: self.schedule.ranks] += self.shares.update
        return weights

    def _add(self, path: TracedPath) -> None:
        if (key := (path.met.tobytes(), path.rank)) in self.paths:
            return
        self.paths[key] = path
        row = self.model.add_rows(np.array([-np.inf]), np.zeros(1))
        columns = np.concatenate([self.step, self.times.ravel()])
        values = np.concatenate([[-1.0], self._weigh(path).ravel()])
        self.model.add_entries(np.repeat(row, columns.size), columns, values)

    def _mix(self, weights: Floats) -> MixedPath:
        """Return the mean with these weights of the paths that were found first."""
        met, update = np.zeros(self.times.shape), np.zeros(self.schedule.stages)
        for weight, path in zip(weights / weights.sum(), self.paths.values(), strict=False):
            met += weight * path.met
            update[path.rank :: self.schedule.ranks] += weight
        return MixedPath(met, update)
