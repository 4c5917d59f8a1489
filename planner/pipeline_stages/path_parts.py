"""Which parts of stages are solved for the bound of a partition: those that the paths through its step meet.

Paths meet the passes of stages, and the update of one of them with few or many of its passes. Solving each part apart
would let the update of stage 0 take what it takes with many passes, and its passes what they take with few. A step of
as many micro-batches as make a plan of slow passes and one of a slow update take equal time bounds both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product

from planner.pipeline_stages.interval_bounds import Span
from planner.pipeline_stages.partition import Cuts
from planner.pipeline_stages.pipeline_plan import PlannedStage
from planner.pipeline_stages.stage_costs import Part
from planner.pipeline_stages.stage_graph import StageGraph
from planner.pipeline_stages.stage_plans import ALONE, Held
from planner.pipeline_stages.step_bounds import StepBounds
from planner.planning.plan_types import Plan


def certify_cuts(bounds: StepBounds, cuts: Cuts, is_enough: Callable[[], bool] | None) -> bool:
    """Solve bounds of the stages of a partition, and return whether any was not known yet.

    First those by which paths are bounded: of a short step of stage 0, and of the passes of each stage, the longest
    first, until they are enough. Where all of these are known, of whole steps. Before them, where not all are wanted,
    those that hold at every stage, with as many micro-batches in flight as the one that has fewest, which hardly cost
    less than with more: of runs of units that all intervals are sums of, and then of these intervals.

    is_enough  whether no more bounds are wanted; None: all are
    """
    spans, costs = list(pairwise(cuts)), bounds.costs
    passes = [costs.matrix(number, "passes")[span] for number, span in enumerate(spans)]
    longest = sorted(list_inwards(len(spans)), key=lambda number: -passes[number])
    if is_enough is not None:
        fewest = min(after for after, _ in bounds.held), min(late for _, late in bounds.held)
        if _certify_runs(bounds, max(last - first for first, last in spans), fewest):
            return True
        anywhere: list[list[tuple[Part, int]]] = [[(part, n) for n in longest] for part in ("loop", "step")]
        if any(_certify_parts(bounds, spans, parts, held=[fewest] * len(spans)) for parts in anywhere):
            return True
    through: list[tuple[Part, int]] = [("through", number) for number in longest if bounds.schedule.is_split]
    met: list[tuple[Part, int]] = [*((count, 0) for count in bounds.counts), *(("loop", n) for n in longest), *through]
    whole: list[tuple[Part, int]] = [(part, number) for number in longest for part in ("step", "long")]
    return any(_certify_parts(bounds, spans, parts, held=bounds.held, is_enough=is_enough) for parts in (met, whole))


def _certify_parts(
    bounds: StepBounds,
    spans: Sequence[Span],
    parts: Sequence[tuple[Part, int]],
    *,
    held: Sequence[Held],
    is_enough: Callable[[], bool] | None = None,
) -> bool:
    """Solve bounds of parts of stages, given by their number, until they are enough.

    held  the micro-batches in flight in each stage
    """
    is_new = False
    for part, number in parts:
        bounds.costs.deadline.check()
        flying = ALONE if part == "through" else held[number]
        if bounds.costs.of_stage(number).certify(part, *spans[number], held=flying):
            is_new = True
            if is_enough is not None and is_enough():
                break
    return is_new


def _certify_runs(bounds: StepBounds, longest: int, held: Held) -> bool:
    """Solve bounds of runs of 2, 4, 8, ... units, up to half of the longest stage; return whether any is new.

    One run is solved for all equal ones, and none that no other equals, but at the ends.
    """
    is_new, count = False, bounds.costs.units.count
    split: list[Part] = ["through"] if bounds.schedule.is_split else []
    for costs, power in product(bounds.costs.distinct, range(1, longest.bit_length() - 1)):
        runs = costs.classes.list_classes(1 << power)
        for run in (each for each in runs if len(each) > 1 or each[0][0] == 0 or each[0][1] == count):
            for part in ("loop", "step", *bounds.counts, *split):
                bounds.costs.deadline.check()
                is_new |= costs.certify(part, *run[0], held=ALONE if part == "through" else held)
    return is_new


def weigh_first(bounds: StepBounds, span: Span, plan: Plan) -> None:
    """Find of how many micro-batches the step of stage 0 says most, from two of its plans.

    One is the fastest for all micro-batches, the other for few. The first partition decides for all, so that what is
    solved for one is of use for the others.
    """
    costs = bounds.costs.first
    stage = costs.stage(*span)
    if bounds.counts != costs.few:
        return
    costs.deadline.check()
    few = costs.few[0]
    passes, update = _sum_times(stage, plan)
    longer, shorter = _sum_times(stage, costs.replan(*span, bounds.held[0], plan, few))
    if longer > passes and shorter < update:
        equal = round((update - shorter) / (longer - passes))
        bounds.counts = (max(few, min(costs.microbatches, equal)),)


def _sum_times(stage: StageGraph, plan: Plan) -> tuple[int, int]:
    """Return the times of the passes of one micro-batch and of the update of a stage's plan in ps."""
    one = PlannedStage(stage, plan)
    times = one.sum_passes(one.analysis.times_ps)
    return times.pass_ps, times.update_ps


def list_inwards(count: int) -> list[int]:
    """Return the stages from both ends inwards, so that equal ones in the middle lie between those with most and least
    in flight.
    """
    return sorted(range(count), key=lambda number: min(number, count - 1 - number))
