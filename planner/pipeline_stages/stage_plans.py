"""Plans of intervals of units as stages, each a certified solve of the stage's graph.

Intervals of equal content are solved once. More micro-batches in flight never cost less: where the plan with many costs
no more than the bound with few, it is the plan of what lies between. A stage whose plan is not found in time has a
standard layout (`planner.pipeline_stages.standard_stages`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from planner import pipeline
from planner.choose.axis_units import AxisUnits
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice
from planner.ir.graph import Graph
from planner.judge.pinned_layouts import list_pinned_layouts
from planner.judge.standard_layouts import list_baselines
from planner.pipeline_stages.content import Content, Passes, describe_content, rename_choice, rename_plan
from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.interval_classes import IntervalClasses, Span
from planner.pipeline_stages.stage_graph import StageGraph, extract_stage
from planner.pipeline_stages.standard_stages import StandardStages, count_peak_bytes, count_step_ps
from planner.planning.certify import leave_nothing
from planner.planning.deadline import Deadline, ProgressReporter, TimeLimitReached
from planner.planning.plan_search import PlanSearch, is_pinned
from planner.planning.plan_types import Certificate, Plan, Request

Held = tuple[int, int]
ALONE: Held = (0, 0)
SHARE = 0.125
"""The share of the time that is left which one solve may take: a step has tens of them."""
COARSE_GAP = 5e-3
"""The gap at which the first search for a stage ends where time is limited."""
SAMPLE_IN_FLIGHT = 4
"""Micro-batches that the sample of standard layouts holds beside the one that runs."""
LEAST_S = 0.1
"""Seconds that a solve gets even when the time is up."""


@dataclass
class StagePlans:
    """Plans of intervals, solved when they are first asked for.

    shares    how many chunks of a rank share the memory limit
    deadline  when solves end
    planned   bounds of plans in ps, by micro-batches of a step, those in flight, and interval
    """

    units: Units
    model: CostModel
    request: Request
    microbatches: int
    is_split: bool
    shares: int
    deadline: Deadline
    plans: dict[Content, Plan] = field(default_factory=dict)
    planned: dict[tuple[int, Held], dict[Span, float]] = field(default_factory=dict)
    solved_ops: int = 0

    def __post_init__(self) -> None:
        self.stages: dict[Span, StageGraph] = {}
        self.steps: dict[tuple[Span, Held, int], tuple[Graph, Content]] = {}
        self.coarse: set[Content] = set()
        self.classes = IntervalClasses(self.units)

    def stage(self, first: int, last: int) -> StageGraph:
        if (first, last) not in self.stages:
            self.stages[first, last] = extract_stage(self.units, first, last)
        return self.stages[first, last]

    def plan(
        self,
        first: int,
        last: int,
        held: Held,
        *,
        share: float = SHARE,
        is_coarse: bool = False,
        microbatches: int | None = None,
    ) -> Plan:
        """Return the plan of an interval with micro-batches in flight; one without a choice where none fits.

        share         of the time that is left, for its search
        is_coarse     whether the search may end at a gap of COARSE_GAP where time is limited
        microbatches  of the step; None: those of the request
        """
        count = microbatches or self.microbatches
        step, key = self._step(first, last, held, count)
        if key not in self.plans or (key in self.coarse and not is_coarse):
            self.coarse.discard(key)
            gap = self._request.gap
            if is_coarse and self.deadline.seconds is not None:
                gap = max(gap, COARSE_GAP)
            self.plans[key] = self._find_between(key) or self._plan_step(step, key, share=share, gap=gap)
            if (self.plans[key].certificate.gap or 0.0) > self._request.gap and is_coarse:
                self.coarse.add(key)
        proven = self.plans[key].certificate
        bound = np.inf if proven.status == "infeasible" else proven.bound_s * 1e12
        if self.shares == 1:
            known = self.planned.setdefault((count, held), {})
            known.update({span: max(bound, known.get(span, 0.0)) for span in self.classes.list_equal(first, last)})
        return rename_plan(self.plans[key], step)

    def replan(self, first: int, last: int, held: Held, plan: Plan, microbatches: int) -> Plan:
        """Return the plan of an interval that is the fastest of a step of other micro-batches, or else the same plan.

        With fewer of them its update takes less and its passes more, with more of them it is the other way round. One
        micro-batch accumulates nothing, so that its plan is none of more.
        """
        if microbatches == 1:
            return plan
        found = self.plan(first, last, held, microbatches=microbatches)
        if found.analysis is None:
            return plan
        other = rename_plan(found, plan.graph)
        assert other.analysis is not None, "a plan that is renamed has a program"
        if other.analysis.peak_bytes > plan.limit_bytes:
            return plan
        proven = prove_longer(plan.certificate, other.analysis.step_ps * PICO, plan.request.gap)
        return replace(other, request=plan.request, certificate=proven)

    def keep(self, first: int, last: int, held: Held, plan: Plan) -> None:
        """Take a plan of an interval that was made before, and its bound."""
        self.plans[self._step(first, last, held, self.microbatches)[1]] = plan
        self.plan(first, last, held)

    def find_plan(self, first: int, last: int, held: Held) -> Plan | None:
        """Return the best plan that is known of an interval with at least as many micro-batches in flight, or None."""
        step, key = self._step(first, last, held, self.microbatches)
        listed = [plan for passes, plan in self._list_alike(key) if is_within(key[-1], passes)]
        best = min(listed, key=lambda plan: plan.certificate.objective_s or np.inf, default=None)
        return None if best is None else rename_plan(best, step)

    def find_standards(self, stages: Sequence[tuple[Span, Held]], until: Deadline) -> tuple[list[Plan], int] | None:
        """Return plans of the intervals of one rank's stages in standard layouts, and the time of the fastest ones.

        The stage that holds most takes the next slower layout until all of them fit together. None: they never do.
        Raises TimeLimitReached after a deadline.
        """
        limit = self.request.find_limit(self.model.hardware)
        plans, fastest = dict[int, Plan](), dict[int, int]()
        others = [self._standard.list_plans(self._step(*span, held, self.microbatches)[0]) for span, held in stages]
        waiting = list(range(len(stages)))
        while waiting:
            until.check()
            number = max(waiting, key=lambda n: count_peak_bytes(plans[n]) if n in plans else math.inf)
            if (plan := next(others[number], None)) is None:
                return None
            plans[number] = plan
            fastest.setdefault(number, count_step_ps(plan))
            is_over = len(plans) == len(stages) and sum(map(count_peak_bytes, plans.values())) > limit
            waiting = [n for n in range(len(stages)) if is_over or n not in plans]
        return [plans[number] for number in range(len(stages))], sum(fastest.values())

    @cached_property
    def _standard(self) -> StandardStages:
        first = max(0, self.units.count // 2 - 1)
        last = first + 2 if self.units.may_be_stages[first, min(first + 2, self.units.count)] else first + 1
        flying = min(SAMPLE_IN_FLIGHT, self.microbatches - 1), 0
        sample = self.stage(first, min(last, self.units.count)).make_step(self.microbatches, flying, is_split=False)
        request = replace(self._request, memory_limit_bytes=self.request.find_limit(self.model.hardware))
        return StandardStages(self.model, request, self.deadline, sample)

    def _step(self, first: int, last: int, held: Held, count: int) -> tuple[Graph, Content]:
        if ((first, last), held, count) not in self.steps:
            step = self.stage(first, last).make_step(count, held, is_split=self.is_split)
            self.steps[(first, last), held, count] = step, describe_content(step)
        return self.steps[(first, last), held, count]

    def _list_alike(self, key: Content) -> list[tuple[Passes, Plan]]:
        """Return the plans of the same ops, with what is in flight."""
        alike = ((one[-1], plan) for one, plan in self.plans.items() if one[:-1] == key[:-1])
        return [(passes, plan) for passes, plan in alike if plan.choice is not None]

    def _find_between(self, key: Content) -> Plan | None:
        """Return a plan with at least as many micro-batches in flight that is proven as good with fewer, if one is."""
        *_, passes = key
        same = self._list_alike(key)
        lower = max((plan.certificate.bound_s for other, plan in same if is_within(other, passes)), default=0.0)
        for other, plan in same:
            upper_s = plan.certificate.objective_s or np.inf
            if is_within(passes, other) and upper_s - lower <= self._request.gap * upper_s:
                return replace(plan, certificate=replace(plan.certificate, bound_s=lower, gap=1 - lower / upper_s))
        return None

    @property
    def _request(self) -> Request:
        """The request of a stage, whose graph has the pins of a layout that is asked for."""
        limit, gap, count = self._share_bytes, self.request.gap / 4, self.microbatches
        own = replace(self.request, microbatches=count, global_batch=None, layout=None)
        return replace(own, memory_limit_bytes=limit, gap=gap)

    @property
    def _share_bytes(self) -> int:
        """The memory limit of a stage that is searched."""
        return self.request.find_limit(self.model.hardware) // self.shares

    def _plan_step(self, step: Graph, key: Content, *, share: float, gap: float) -> Plan:
        """Return the plan of a step: the search's, else the one that is known, else a standard layout, else none."""
        self.solved_ops += len(step.ops)
        request, ends = self._limit_time(replace(self._request, gap=gap), share)
        mesh, report = self.model.mesh, ProgressReporter(ends, None)
        standard = None if ends.seconds is None else self._standard.find_plan(step, self._share_bytes)
        known = self._list_choices(step, key) + ([standard.choice] if standard and standard.choice else [])
        try:
            baselines = [] if known else list_baselines(step, mesh)
            pinned = list_pinned_layouts(step, self.model, baselines, layout=None) if is_pinned(step) else []
            search = PlanSearch(step, self.model, request, ends, report, AxisUnits.of(mesh), baselines, pinned)
            plan = pipeline.search_step(search, known)
        except TimeLimitReached:
            known_plan = self.plans.get(key) or standard
            return known_plan or leave_nothing(step, self.model, request, wall_s=ends.elapsed_s)
        return replace(plan, baselines=standard.baselines) if standard else plan

    def _limit_time(self, request: Request, share: float) -> tuple[Request, Deadline]:
        """Return a request and its deadline with a share of the time that is left."""
        left_s = self.deadline.left_s
        limit_s = None if left_s is None else max(share * left_s, LEAST_S)
        return replace(request, time_limit_s=limit_s), Deadline(limit_s)

    def _list_choices(self, step: Graph, key: Content) -> list[Choice]:
        """Return the choices of plans of the same ops with other micro-batches in flight, to start from."""
        return [rename_choice(plan, step) for _, plan in self._list_alike(key)]


def is_within(one: Passes, other: Passes) -> bool:
    """Return whether as many micro-batches pass as in the other, with no more of them in flight."""
    return one[0] == other[0] and one[1] <= other[1] and one[2] <= other[2]


def prove_longer(proven: Certificate, step_s: float, most: float) -> Certificate:
    """Return the certificate of a longer step with the same bound; `most`: the gap that counts as none."""
    gap = 1 - proven.bound_s / step_s
    status, reason = (proven.status, proven.reason) if gap <= most else ("feasible", "methods exhausted")
    return replace(proven, objective_s=step_s, gap=gap, status=status, reason=reason)
