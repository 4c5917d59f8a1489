"""Bounds of steps are below every step of a partition, and below the least of all partitions."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.ir.mesh import Mesh
from planner.pipeline_stages.partition import Cuts
from planner.pipeline_stages.path_parts import certify_cuts, weigh_first
from planner.pipeline_stages.pipeline_plan import PlannedStage
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.schedules import PipelineSchedule, ScheduleName
from planner.pipeline_stages.stage_costs import StageCosts
from planner.pipeline_stages.step_bounds import StepBounds
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from tests.testing.exhaustive_stages import ExhaustiveStages, time_steps
from tests.testing.random_trainings import random_training

MODEL = CostModel(Mesh.parse("2"), load_profile("h100-sxm"))
MICROBATCHES = 6


def find_least_ps(everything: ExhaustiveStages, schedule: PipelineSchedule, costs: StageCosts, cuts: Cuts) -> float:
    """Return the least step of a partition in two stages, without sends, of all choices; infinite where none fits."""
    one, other = (
        everything.list_choices(schedule, number, costs.stage(*span)).times
        for number, span in enumerate(pairwise(cuts))
    )
    first, second = (grid.ravel() for grid in np.indices((len(one), len(other))))
    none = np.zeros(1, np.int64)
    steps = time_steps(schedule, [one[first], other[second]], [(none, none)]) if first.size else np.zeros(0)
    return float(min(steps.tolist(), default=np.inf))


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1"])
@pytest.mark.parametrize("seed", [0, 2, 4, 5])
def test_bounds_are_below_the_steps_of_all_choices(seed: int, name: ScheduleName) -> None:
    graph, schedule = random_training(seed, 2), PipelineSchedule(name, 2, MICROBATCHES)
    limit = int(0.8 * sum(kind.bytes for kind in graph.types.values())) if seed % 2 else None
    everything, request = ExhaustiveStages(graph, [MODEL], limit), Request(limit, gap=0.0)
    costs = StageCosts(everything.units, MODEL, request, MICROBATCHES, schedule.is_split, 1, Deadline())
    bounds, count = StepBounds(schedule, RankCosts((costs,))), everything.units.count
    listed = [(0, *inner, count) for inner in combinations(range(1, count), 1)]
    least = {cuts: find_least_ps(everything, schedule, costs, cuts) for cuts in listed}
    for cuts, step in least.items():
        for most in (np.inf, step * 1.01 + 1):
            before = bounds.bound_cuts(cuts, most)
            assert before <= step
            while certify_cuts(bounds, cuts, lambda: False):
                pass
            assert before <= bounds.bound_cuts(cuts, most) <= step
        best = min(least.values())
        found = bounds.find_least(best + 1)
        assert found is None or found.largest <= best
        assert found is not None or best == np.inf


def test_a_stage_is_planned_again_for_fewer_micro_batches_with_the_bound_that_it_has() -> None:
    graph, schedule = random_training(4, 2), PipelineSchedule("1f1b", 2, MICROBATCHES)
    costs = StageCosts(
        ExhaustiveStages(graph, [MODEL]).units, MODEL, Request(gap=0.0), MICROBATCHES, False, 1, Deadline()
    )
    bounds, cuts = StepBounds(schedule, RankCosts((costs,))), (0, 1, 2)
    plan = costs.plan(0, 1, bounds.held[0])
    weigh_first(bounds, (0, 1), plan)
    assert all(1 <= each <= MICROBATCHES for each in bounds.counts)
    assert costs.replan(0, 1, bounds.held[0], plan, 1) == plan
    few = costs.replan(0, 1, bounds.held[0], plan, 2)
    own, other = PlannedStage(costs.stage(0, 1), plan), PlannedStage(costs.stage(0, 1), few)
    assert other.analysis.step_ps >= own.analysis.step_ps
    assert few.certificate.bound_s == plan.certificate.bound_s
    assert few.certificate.objective_s == pytest.approx(other.analysis.step_ps * 1e-12)
    passes = [one.sum_passes(one.analysis.times_ps) for one in (own, other)]
    least = [2 * times.pass_ps + times.update_ps for times in passes]
    assert least[1] <= least[0]
    certify_cuts(bounds, cuts, lambda: False)
    assert bounds.bound_cuts(cuts, np.inf) > 0
