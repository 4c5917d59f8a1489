"""State of a capacity search: the candidates, and the known results and bounds of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.choose.formulate import Choice
from planner.choose.hardware import Hardware, parse_hardware
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.judge.mesh_candidates import MeshCandidate, TierCounts, devices_per_tier, mesh_distance, refines
from planner.judge.mfu import model_flops, utilisation
from planner.judge.pareto import Point, pareto_frontier
from planner.judge.roofline_bounds import Floor
from planner.judge.standard_layouts import check_layout
from planner.notebook import HtmlTable, notebook_html
from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.tied_parameters import list_units
from planner.planning.deadline import Deadline
from planner.planning.plan_search import is_pinned
from planner.units import format_bytes, format_share, format_time
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
from planner.usecases.capacity_stages import bound_candidate, estimate_step_s, list_candidate_schedules, take_turns

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
    _estimates: dict[int, float] = field(default_factory=dict)

    @cached_property
    def hardware(self) -> tuple[Hardware, ...]:
        return tuple(parse_hardware(offer.document) for offer in self.question.offers)

    @cached_property
    def order(self) -> list[int]:
        """Numbers of the candidates in the order of reports."""
        listed = self.question.candidates
        return sorted(
            range(len(listed)), key=lambda n: (listed[n].devices, listed[n].stages, -len(listed[n].mesh.axes), n)
        )

    @cached_property
    def bounds(self) -> dict[int, Floor]:
        """Lower bounds of each candidate, which depend on its numbers of devices and stages alone."""
        known: dict[tuple[int, int, int, int], Floor] = {}
        return {number: self._find_bounds(one, known) for number, one in enumerate(self.question.candidates)}

    def _find_bounds(self, one: MeshCandidate, known: dict[tuple[int, int, int, int], Floor]) -> Floor:
        key = one.graph, one.hardware, one.stages, one.mesh.devices
        if key not in known:
            recompute = self.question.request.recompute != "none"
            graphs = [self._graphs[one.graph]]
            if one.stages > 1:
                graphs = [self.question.build_step(units.graph) for units in self._units[one.graph]]
            hardware, is_plain = self.hardware[one.hardware], all(self._list_schedules(one))
            floors = [bound_candidate(g, hardware, one, is_plain=is_plain, recompute=recompute) for g in graphs]
            known[key] = Floor(min(f.step_s for f in floors), min(f.peak_bytes for f in floors))
        return known[key]

    def _list_schedules(self, one: MeshCandidate) -> list[bool]:
        return list_candidate_schedules(self.question.pipeline, one.stages, self._graphs[one.graph].microbatches)

    def _has_stages(self, one: MeshCandidate) -> bool:
        """Return whether the graph has so many stages, and a schedule for them."""
        chunks = self.question.pipeline.virtual_stages if self.question.pipeline else 1
        most = max((units.count for units in self._units.get(one.graph, ())), default=1)
        return one.stages == 1 or (one.stages * chunks <= most and bool(self._list_schedules(one)))

    @cached_property
    def _units(self) -> dict[int, list[Units]]:
        """The parts of each graph that can be stages, where stages are considered."""
        graphs = {one.graph for one in self.question.candidates if one.stages > 1}
        return {number: list_units(self._passes[number]) for number in sorted(graphs)}

    @cached_property
    def _graphs(self) -> tuple[Graph, ...]:
        """The graphs of a step."""
        return tuple(map(self.question.build_step, self._passes))

    @cached_property
    def _passes(self) -> tuple[Graph, ...]:
        """The graphs of a pass, each on its first candidate mesh: bounds read only what is the same on all meshes."""
        meshes = {one.graph: one.mesh for one in reversed(self.question.candidates)}
        documents = (GraphDocument.model_validate(asked.document) for asked in self.question.graphs)
        return tuple(load_graph(document, meshes[number]) for number, document in enumerate(documents))

    @cached_property
    def _tier_counts(self) -> list[tuple[TierCounts, ...]]:
        return [devices_per_tier(one.mesh, self.hardware[one.hardware]) for one in self.question.candidates]

    def mfu(self, number: int, step_s: float) -> float:
        """Return the model FLOPs utilization of a step of a candidate (`planner.judge.mfu`)."""
        one = self.question.candidates[number]
        return utilisation(self._flops[one.graph], self.hardware[one.hardware], one.devices, step_s=step_s)

    def prepare_figures(self) -> None:
        """Count what bounds and figures are computed from, which takes seconds for a large graph."""
        self.bounds, self._flops  # noqa: B018

    @cached_property
    def _flops(self) -> list[dict[str, float]]:
        return [model_flops(graph) for graph in self._graphs]

    def memory_limit_bytes(self, number: int) -> int:
        """Return the memory limit per device of a candidate."""
        hardware = self.hardware[self.question.candidates[number].hardware]
        return self.question.request.memory_limit_bytes or hardware.memory_bytes

    def _refining_outcomes(self, number: int) -> Iterator[tuple[int, CandidateResult]]:
        """Yield the outcomes whose bounds hold for a candidate too: its own, and those of meshes that refine its mesh.

        Pins name mesh axes: with them, bounds of other meshes do not hold.
        """
        one = self.question.candidates[number]
        has_pins = self.question.request.layout is not None or is_pinned(self._graphs[one.graph])
        for other, outcome in self.outcomes.items():
            candidate = self.question.candidates[other]
            kinds = [(each.graph, each.hardware, each.stages) for each in (candidate, one)]
            is_comparable = not has_pins and kinds[0] == kinds[1]
            if other == number or (is_comparable and refines(self._tier_counts[other], self._tier_counts[number])):
                yield other, outcome

    def _has_layout(self, number: int) -> bool:
        """Return whether a candidate can have the layout that is asked for, if one is."""
        one, layout = self.question.candidates[number], self.question.request.layout
        try:
            if layout is not None:
                check_layout(self._graphs[one.graph], one.mesh, layout)
        except InvalidRequest:
            return False
        return True

    def find_skip_reason(self, number: int) -> SkippedCandidate | None:
        """Return why a candidate need not be planned, or None where it has to be."""
        if not self._has_layout(number):
            return SkippedCandidate("layout")
        if not self._has_stages(self.question.candidates[number]):
            return SkippedCandidate("stages")
        floor, known = self.bounds[number], list(self._refining_outcomes(number))
        if floor.peak_bytes > self.memory_limit_bytes(number):
            return SkippedCandidate("memory")
        if empty := [other for other, outcome in known if outcome.status == "infeasible"]:
            return SkippedCandidate("infeasible", empty[0])
        least = max([floor.step_s, *(outcome.bound_s for _, outcome in known)])
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

    def cutoff_s(self, number: int) -> float | None:
        """Return the step time from which on a known plan is no worse, up to the gap; None: no plan is known."""
        one, share = self.question.candidates[number], 1 - self.question.request.gap
        unit = self.question.point(one, 1.0)
        fewer = (point for _, point in self.points() if point.devices <= unit.devices)
        return min((share * max(p.cost / unit.cost, p.time_s / unit.time_s) for p in fewer), default=None)

    def points(self) -> list[tuple[int, Point]]:
        """Return the candidates for which a plan was found, with devices, cost and time."""
        done = ((number, outcome.objective_s) for number, outcome in sorted(self.outcomes.items()))
        return [(n, self.question.point(self.question.candidates[n], s)) for n, s in done if s is not None]

    def frontier(self) -> list[int]:
        return pareto_frontier(self.points())

    def frontier_within(self, budget: CapacityBudget) -> list[int]:
        """Return the part of the frontier that a budget allows.

        Raises InvalidRequest where it allows no plan that was found, and names the least known time and cost.
        """
        points = dict(self.points())
        steps = {number: self.outcomes[number].objective_s or 0.0 for number in points}
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
        step_s = outcome.objective_s or 0.0
        where = one.notation, self.hardware[one.hardware].name, str(one.devices)
        figures = format_time(step_s), f"{self.question.point(one, step_s).cost:.4g}"
        shares = format_share(self.mfu(number, step_s)), format_share(outcome.gap)
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
        for number in sorted(dict(self.points()), key=lambda n: self.outcomes[n].objective_s or 0.0):
            fastest.setdefault(_candidate_kind(listed[number]), number)

        def priority(number: int) -> tuple[float, ...]:
            one, lead = listed[number], fastest.get(_candidate_kind(listed[number]))
            far = 0.0 if lead is None else mesh_distance(one.mesh, listed[lead].mesh)
            return one.devices, -len(one.mesh.axes), far, number

        return sorted(numbers, key=priority)

    def _sort_by_promise(self, numbers: Collection[int]) -> list[int]:
        """Sort candidates so that the numbers of devices take turns, the most promising ones first."""
        question = self.question
        for number in set(self.order) - self._estimates.keys():
            one = question.candidates[number]
            hardware, batch = self.hardware[one.hardware], question.graphs[one.graph].batch
            self._estimates[number] = estimate_step_s(self.bounds[number], one, hardware, batch=batch)
        turns = Counter(question.candidates[number].devices for number in (*self.outcomes, *self.running))
        return take_turns(numbers, self._estimates, {n: question.candidates[n].devices for n in numbers}, planned=turns)

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
