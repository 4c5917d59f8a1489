"""State of a capacity search: the candidates, and the known results and bounds of each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from planner.choose.formulate import Choice
from planner.errors import InvalidRequest
from planner.judge.mesh_candidates import MeshCandidate, mesh_distance
from planner.judge.pareto import Point, pareto_frontier
from planner.notebook import HtmlTable, notebook_html
from planner.planning.deadline import Deadline
from planner.units import format_bytes, format_share, format_time
from planner.usecases.capacity_bounds import CandidateBounds
from planner.usecases.capacity_question import (
    FIRST_SHARE,
    STAGES_SHARE,
    TIME_SHARE,
    CandidateResult,
    CandidateTask,
    CapacityBudget,
    CapacityQuestion,
    SkippedCandidate,
)
from planner.usecases.capacity_stages import take_turns

BOUNDED = "bounded"
"""Status of a candidate that was proven, by its bound alone, to be no better than a known plan."""

UNBOUNDED = CapacityBudget()


def _candidate_kind(one: MeshCandidate) -> tuple[int, int]:
    """Return the graph and the number of axes: candidates that share them can start from each other's choices."""
    return one.graph, len(one.mesh.axes)


@dataclass
class CapacitySearch:
    """Outcomes of the candidates so far, by number; `running` are those that are being planned.

    unfit    candidates with stages for which no standard layout fits
    pricing  until when candidates with stages are priced in standard layouts before any is searched
    """

    question: CapacityQuestion
    outcomes: dict[int, CandidateResult] = field(default_factory=dict)
    skipped: dict[int, SkippedCandidate] = field(default_factory=dict)
    running: list[int] = field(default_factory=list)
    unfit: set[int] = field(default_factory=set)
    pricing: Deadline = field(default_factory=lambda: Deadline(0.0))

    @cached_property
    def order(self) -> list[int]:
        """Numbers of the candidates in the order of reports."""
        listed = self.question.candidates
        return sorted(
            range(len(listed)), key=lambda n: (listed[n].devices, listed[n].stages, -len(listed[n].mesh.axes), n)
        )

    @cached_property
    def bounds(self) -> CandidateBounds:
        return CandidateBounds(self.question)

    def _refining_outcomes(self, number: int) -> Iterator[tuple[int, CandidateResult]]:
        """Yield the outcomes whose bounds hold for a candidate too: its own, and those of meshes that refine it."""
        for other, outcome in self.outcomes.items():
            if self.bounds.is_refined(number, other):
                yield other, outcome

    def find_skip_reason(self, number: int) -> SkippedCandidate | None:
        """Return why a candidate need not be planned, or None where it has to be."""
        if not self.bounds.has_layout(number):
            return SkippedCandidate("layout")
        if not self.bounds.has_stages(number):
            return SkippedCandidate("stages")
        floor, known = self.bounds.floor(number), list(self._refining_outcomes(number))
        if floor.peak_bytes > self.bounds.find_memory_limit(number):
            return SkippedCandidate("memory")
        if empty := [other for other, outcome in known if outcome.status == "infeasible"]:
            return SkippedCandidate("infeasible", empty[0])
        bound_s = max([floor.step_s, *(outcome.bound_s for _, outcome in known)])
        least = self.bounds.bound_step_s(number, bound_s)
        best_possible = self.question.point(self.question.candidates[number], least)
        slack = self.question.request.gap
        better = [other for other, point in self.points() if point.is_no_worse(best_possible, slack)]
        return SkippedCandidate("bound", better[0]) if better else None

    @property
    def planned_count(self) -> int:
        """Number of candidates that were planned, or proven to be infeasible."""
        return sum(outcome.status != BOUNDED for outcome in self.outcomes.values())

    def skip_reason(self, number: int) -> SkippedCandidate | None:
        """Return why a candidate has no plan, or None where it has one."""
        outcome = self.outcomes.get(number)
        return self.find_skip_reason(number) if outcome and outcome.status == BOUNDED else self.skipped.get(number)

    def step_bound_s(self, number: int) -> float:
        """Return what is proven of the step of any plan of a candidate that has an outcome."""
        return self.bounds.bound_step_s(number, self.outcomes[number].bound_s)

    def step_gap(self, number: int) -> float | None:
        """Return by what share the step of a candidate's plan is above its bound; None without a plan."""
        step_s = self.outcomes[number].step_s
        return 1 - self.step_bound_s(number) / step_s if step_s else None

    def cutoff_s(self, number: int) -> float | None:
        """Return the sum of instructions from which on a known plan is no worse than any plan of a candidate.

        This is up to the gap. None: no plan is known.
        """
        one, share = self.question.candidates[number], 1 - self.question.request.gap
        unit = self.question.point(one, 1.0)
        fewer = (point for _, point in self.points() if point.devices <= unit.devices)
        steps = [share * max(p.cost / unit.cost, p.time_s / unit.time_s) for p in fewer]
        return self.bounds.find_serial_cutoff_s(number, min(steps)) if steps else None

    def points(self) -> list[tuple[int, Point]]:
        """Return the candidates for which a plan was found, with devices, cost and time."""
        done = ((number, outcome.step_s) for number, outcome in sorted(self.outcomes.items()))
        return [(n, self.question.point(self.question.candidates[n], s)) for n, s in done if s is not None]

    def frontier(self) -> list[int]:
        return pareto_frontier(self.points())

    def frontier_within(self, budget: CapacityBudget) -> list[int]:
        """Return the part of the frontier that a budget allows.

        Raises InvalidRequest where it allows no plan that was found, and names the least known time and cost.
        """
        points = dict(self.points())
        steps = {number: self.outcomes[number].step_s or 0.0 for number in points}
        allowed = [number for number in self.frontier() if budget.allows(steps[number], points[number])]
        if points and not allowed:
            got = f"a step in {budget.step_s or 'any'} s, a {self.question.unit} for {budget.cost or 'any'}"
            cheapest = min(point.cost for point in points.values())
            wanted = f"{min(steps.values()):.4g} s or more, {cheapest:.4g} or more, and perhaps not both at once"
            raise InvalidRequest("no plan meets the budget", got=got, wanted=wanted)
        return allowed

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the frontier, and how many candidates were planned."""
        title = f"Capacity of {', '.join(asked.document['name'] for asked in self.question.graphs)}"
        lead = f"{len(self.order)} candidates, {self.planned_count} planned; the others are proven to be no better"
        columns = ("mesh", "hardware", "devices", "step", "cost", "MFU", "gap", "peak memory")
        caption = f"The frontier, with the cost of a {self.question.unit}"
        return notebook_html(title, lead, HtmlTable(caption, columns, map(self._row, self.frontier())))

    def _row(self, number: int) -> tuple[str, ...]:
        one, outcome = self.question.candidates[number], self.outcomes[number]
        step_s = outcome.step_s or 0.0
        where = one.notation, self.bounds.hardware[one.hardware].name, str(one.devices)
        figures = format_time(step_s), f"{self.question.point(one, step_s).cost:.4g}"
        shares = format_share(self.bounds.find_mfu(number, step_s)), format_share(self.step_gap(number))
        return *where, *figures, *shares, format_bytes(outcome.peak_bytes or 0)

    def sort_candidates(self, numbers: Collection[int]) -> list[int]:
        """Sort candidates into the order in which to plan them.

        Fewest devices come first; among these most axes, as their bounds hold for meshes of fewer axes; among these
        the meshes nearest to that of the fastest plan so far, which are the most likely to improve on it. Where stages
        are considered, the numbers of devices take turns, each with its most promising candidate.
        """
        if self.question.pipeline is not None:
            return self._sort_by_promise(numbers)
        listed, fastest = self.question.candidates, dict[tuple[int, int], int]()
        for number in sorted(dict(self.points()), key=lambda n: self.outcomes[n].step_s or 0.0):
            fastest.setdefault(_candidate_kind(listed[number]), number)

        def priority(number: int) -> tuple[float, ...]:
            one, lead = listed[number], fastest.get(_candidate_kind(listed[number]))
            far = 0.0 if lead is None else mesh_distance(one.mesh, listed[lead].mesh)
            return one.devices, -len(one.mesh.axes), far, number

        return sorted(numbers, key=priority)

    def _sort_by_promise(self, numbers: Collection[int]) -> list[int]:
        """Sort candidates so that the numbers of devices take turns, the most promising ones first.

        First come those to price, while it is time for that, and then those to search.
        """
        devices = {number: self.question.candidates[number].devices for number in self.order}
        new = [number for number in numbers if number not in self.outcomes and number not in self.unfit]
        estimates = {number: self.bounds.estimate_step_s(number) for number in new}
        turns = Counter(devices[number] for number in (*self.outcomes, *self.running))
        priced = {number: self.outcomes[number].step_s or 0.0 for number in numbers if number in self.outcomes}
        searched = [number for number, outcome in self.outcomes.items() if outcome.is_searched]
        again = Counter(devices[number] for number in (*searched, *self.running))
        parts = [
            take_turns(new, estimates, devices, planned=turns),
            take_turns(priced, priced, devices, planned=again),
        ]
        if self.pricing.left_s == 0.0:
            parts.reverse()
        return [*parts[0], *parts[1], *sorted(self.unfit.intersection(numbers))]

    def start(self, number: int) -> Choice | None:
        """Return the choice of the nearest mesh with as many axes, or None where no such mesh has one."""
        one = self.question.candidates[number]
        near = [
            (mesh_distance(one.mesh, candidate.mesh), other)
            for other, outcome in self.outcomes.items()
            if outcome.choice is not None
            and _candidate_kind(candidate := self.question.candidates[other]) == _candidate_kind(one)
        ]
        return self.outcomes[min(near)[1]].choice if near else None

    @property
    def is_cancelled(self) -> bool:
        return any(passed.skip_reason == "cancelled" for passed in self.skipped.values())

    def cancel(self) -> None:
        """Skip every candidate that has no outcome yet."""
        self.running.clear()
        for number in set(self.order) - self.outcomes.keys() - self.skipped.keys():
            self.skipped[number] = SkippedCandidate("cancelled")

    def list_unfinished(self) -> list[int]:
        """Return the candidates that are neither planned nor skipped, or have a plan that no search has improved."""
        finished = {number for number, outcome in self.outcomes.items() if outcome.is_searched}
        return [number for number in self.order if number not in finished and number not in self.skipped]

    def submit(self, number: int, outcome: CandidateResult) -> bool:
        """Keep the outcome of a candidate, or skip it. Return whether it is to be planned again, by a search.

        A search keeps the plan in standard layouts where it finds none that is better; what is proven of all schedules
        stays the bound.
        """
        known = self.outcomes.get(number)
        if outcome.status == "unknown":
            if outcome.is_searched:
                self.skip(number, SkippedCandidate("time"))
            else:
                self.unfit.add(number)
            return not outcome.is_searched
        if known is not None and outcome.step_s is not None and known.step_s is not None:
            best = min(outcome, known, key=lambda each: each.step_s or math.inf)
            gap = max(0.0, 1 - known.bound_s / best.step_s) if best.step_s else None
            outcome = replace(best, bound_s=known.bound_s, gap=gap, is_searched=outcome.is_searched)
        self.outcomes[number] = outcome
        return not outcome.is_searched

    def skip(self, number: int, reason: SkippedCandidate) -> None:
        """Note why a candidate has no plan; one that has a plan keeps it."""
        if number not in self.outcomes:
            self.skipped[number] = reason

    @property
    def is_complete(self) -> bool:
        """Whether all candidates are searched, or proven to need no search."""
        is_known = all(passed.skip_reason not in ("time", "cancelled") for passed in self.skipped.values())
        left = (number for number, outcome in self.outcomes.items() if not outcome.is_searched)
        return is_known and all(self.find_skip_reason(number) for number in left)

    def count_excluded(self) -> Counter[str]:
        """Count the candidates without a plan so far, by the reason."""
        bounded = [number for number, outcome in self.outcomes.items() if outcome.status == BOUNDED]
        return Counter([passed.skip_reason for passed in self.skipped.values()] + ["bound"] * len(bounded))

    def make_task(self, number: int, deadline: Deadline | None = None) -> CandidateTask:
        one, question = self.question.candidates[number], self.question
        graph, profile = question.graphs[one.graph].document, question.offers[one.hardware].document
        start, cutoff_s = self.start(number), self.cutoff_s(number)
        task = CandidateTask(graph, profile, one.mesh, question.request, start, cutoff_s, deadline or Deadline())
        if question.pipeline is None:
            return replace(task, share=FIRST_SHARE if cutoff_s is None else TIME_SHARE)
        stages, known = replace(question.pipeline, stages=one.stages), self.outcomes.get(number)
        if known is not None and known.schedule is not None:
            schedule: Any = known.schedule
            stages = replace(stages, schedule=schedule, virtual_stages=known.virtual_stages)
        is_new = known is None and number not in self.unfit and task.deadline.seconds is not None
        return replace(task, pipeline=stages, share=1.0 if is_new else STAGES_SHARE, is_standard=is_new)
