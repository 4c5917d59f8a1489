"""State of a capacity search: the candidates, and the known results and bounds of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

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
    """Outcomes of the candidates so far, by number; `running` are those that are being planned."""

    question: CapacityQuestion
    outcomes: dict[int, CandidateResult] = field(default_factory=dict)
    skipped: dict[int, SkippedCandidate] = field(default_factory=dict)
    running: list[int] = field(default_factory=list)

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
        """Sort candidates so that the numbers of devices take turns, the most promising ones first."""
        devices = {number: self.question.candidates[number].devices for number in self.order}
        turns = Counter(devices[number] for number in (*self.outcomes, *self.running))
        estimates = {number: self.bounds.estimate_step_s(number) for number in numbers}
        return take_turns(numbers, estimates, devices, planned=turns)

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

    def count_excluded(self) -> Counter[str]:
        """Count the candidates without a plan so far, by the reason."""
        bounded = [number for number, outcome in self.outcomes.items() if outcome.status == BOUNDED]
        return Counter([passed.skip_reason for passed in self.skipped.values()] + ["bound"] * len(bounded))

    def make_task(self, number: int, deadline: Deadline | None = None) -> CandidateTask:
        one, question = self.question.candidates[number], self.question
        graph, profile = question.graphs[one.graph].document, question.offers[one.hardware].document
        start, cutoff_s, stages = self.start(number), self.cutoff_s(number), None
        share = FIRST_SHARE if cutoff_s is None else TIME_SHARE
        if question.pipeline is not None:
            stages, share = replace(question.pipeline, stages=one.stages) if one.stages > 1 else None, STAGES_SHARE
        limits = deadline or Deadline(), stages, share
        return CandidateTask(graph, profile, one.mesh, question.request, start, cutoff_s, *limits)
