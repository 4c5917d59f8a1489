"""A question of capacity, and what is known of every mesh it asks about: the nouns of `planner.usecases.capacity`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
from planner.judge.roofline_bounds import Floor, min_memory_bytes, min_step_s
from planner.notebook import HtmlTable, notebook_html
from planner.units import format_bytes, format_share, format_time
from planner.usecases.capacity_question import (
    CandidateResult,
    CandidateTask,
    CapacityBudget,
    CapacityQuestion,
    SkippedCandidate,
)

BOUNDED = "bounded"
"""Of an outcome: proven, before any plan was looked for, to be no better than what was known."""


UNBOUNDED = CapacityBudget()


def _candidate_kind(one: MeshCandidate) -> tuple[int, int]:
    """What candidates share whose choices are alike: graph, number of axes."""
    return one.graph, len(one.mesh.axes)


@dataclass
class CapacitySearch:
    """Candidates, by number, and what is known of each so far."""

    question: CapacityQuestion
    outcomes: dict[int, CandidateResult] = field(default_factory=dict)
    skipped: dict[int, SkippedCandidate] = field(default_factory=dict)

    @cached_property
    def hardware(self) -> tuple[Hardware, ...]:
        return tuple(parse_hardware(offer.document) for offer in self.question.offers)

    @cached_property
    def order(self) -> list[int]:
        """In which candidates are listed."""
        listed = self.question.candidates
        return sorted(range(len(listed)), key=lambda n: (listed[n].mesh.devices, -len(listed[n].mesh.axes), n))

    @cached_property
    def bounds(self) -> dict[int, Floor]:
        """Of every candidate: those of as many devices have the same."""
        found: dict[tuple[int, int, int], Floor] = {}
        return {number: self._find_bounds(one, found) for number, one in enumerate(self.question.candidates)}

    def _find_bounds(self, one: MeshCandidate, known: dict[tuple[int, int, int], Floor]) -> Floor:
        key = one.graph, one.hardware, one.mesh.devices
        if key not in known:
            graph = self._graphs[one.graph]
            again = self.question.request.recompute != "none"
            seconds = min_step_s(graph, self.hardware[one.hardware], one.mesh.devices)
            known[key] = Floor(seconds, min_memory_bytes(graph, one.mesh.devices, again))
        return known[key]

    @cached_property
    def _graphs(self) -> tuple[Graph, ...]:
        """On the first mesh each is asked for: floors are read off what is the same on all."""
        meshes = {one.graph: one.mesh for one in reversed(self.question.candidates)}
        documents = (GraphDocument.model_validate(asked.document) for asked in self.question.graphs)
        return tuple(load_graph(document, meshes[number]) for number, document in enumerate(documents))

    @cached_property
    def _joined(self) -> list[tuple[TierCounts, ...]]:
        return [devices_per_tier(one.mesh, self.hardware[one.hardware]) for one in self.question.candidates]

    def mfu(self, number: int, step_s: float) -> float:
        """The model FLOPs utilisation of a step of a candidate (`planner.judge.mfu`)."""
        one = self.question.candidates[number]
        return utilisation(self._flops[one.graph], self.hardware[one.hardware], one.mesh.devices, step_s=step_s)

    @cached_property
    def _flops(self) -> list[dict[str, float]]:
        return [model_flops(graph) for graph in self._graphs]

    def memory_limit_bytes(self, number: int) -> int:
        """Bytes of a device."""
        hardware = self.hardware[self.question.candidates[number].hardware]
        return self.question.request.memory_limit_bytes or hardware.memory_bytes

    def _refining_outcomes(self, number: int) -> Iterator[tuple[int, CandidateResult]]:
        """Outcomes that tell what no plan of a candidate can do. Pins name mesh axes: with them each stands alone."""
        one = self.question.candidates[number]
        graph = self._graphs[one.graph]
        alone = bool(graph.annotations) or any(op.option is not None for op in graph.ops)
        for other, outcome in self.outcomes.items():
            of = self.question.candidates[other]
            alike = not alone and (of.graph, of.hardware) == (one.graph, one.hardware)
            if other == number or (alike and refines(self._joined[other], self._joined[number])):
                yield other, outcome

    def find_skip_reason(self, number: int) -> SkippedCandidate | None:
        """Why a candidate need not be planned, or planned further, if it need not."""
        floor, known = self.bounds[number], list(self._refining_outcomes(number))
        if floor.peak_bytes > self.memory_limit_bytes(number):
            return SkippedCandidate("memory")
        if empty := [other for other, outcome in known if outcome.status == "infeasible"]:
            return SkippedCandidate("infeasible", empty[0])
        least = max([floor.step_s, *(outcome.bound_s for _, outcome in known)])
        at = self.question.point(self.question.candidates[number], least)
        slack = self.question.request.gap
        better = [other for other, point in self.points() if point.is_no_worse(at, slack)]
        return SkippedCandidate("bound", better[0]) if better else None

    @property
    def planned_count(self) -> int:
        """How many candidates were planned, or proven to fit no plan."""
        return sum(outcome.status != BOUNDED for outcome in self.outcomes.values())

    def skip_reason(self, number: int) -> SkippedCandidate | None:
        """Why there is no plan of a candidate, where it was passed over."""
        outcome = self.outcomes.get(number)
        return self.find_skip_reason(number) if outcome and outcome.status == BOUNDED else self.skipped.get(number)

    def cutoff_s(self, number: int) -> float | None:
        """Seconds of a step from which on a plan that is known is no worse, but for the gap."""
        one, share = self.question.candidates[number], 1 - self.question.request.gap
        unit = self.question.point(one, 1.0)
        fewer = (point for _, point in self.points() if point.devices <= unit.devices)
        return min((share * max(p.cost / unit.cost, p.time_s / unit.time_s) for p in fewer), default=None)

    def points(self) -> list[tuple[int, Point]]:
        """The plans that were found."""
        done = ((number, outcome.objective_s) for number, outcome in sorted(self.outcomes.items()))
        return [(n, self.question.point(self.question.candidates[n], s)) for n, s in done if s is not None]

    def frontier(self) -> list[int]:
        return pareto_frontier(self.points())

    def frontier_within(self, budget: CapacityBudget) -> list[int]:
        """The frontier, as far as a budget allows. Raises InvalidRequest where it allows none of the plans found, with
        the least that is known."""
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
        """How a notebook shows it: the frontier, and how many candidates were planned."""
        title = f"Capacity of {', '.join(asked.document['name'] for asked in self.question.graphs)}"
        lead = f"{len(self.order)} candidates, {self.planned_count} planned; the others are proven to be no better"
        columns = ("mesh", "hardware", "devices", "step", "cost", "MFU", "gap", "peak memory")
        caption = f"The frontier, with the cost of a {self.question.unit}"
        return notebook_html(title, lead, HtmlTable(caption, columns, map(self._row, self.frontier())))

    def _row(self, number: int) -> tuple[str, ...]:
        one, outcome = self.question.candidates[number], self.outcomes[number]
        step_s = outcome.objective_s or 0.0
        where = one.mesh.notation, self.hardware[one.hardware].name, str(one.mesh.devices)
        figures = format_time(step_s), f"{self.question.point(one, step_s).cost:.4g}"
        shares = format_share(self.mfu(number, step_s)), format_share(outcome.gap)
        return *where, *figures, *shares, format_bytes(outcome.peak_bytes or 0)

    def sort_candidates(self, numbers: Iterable[int]) -> list[int]:
        """Candidates in the order to look at them: fewest devices first, of as many those of most axes, which cover
        others, and of those the ones nearest to the fastest plan of their kind so far, likely to be better still."""
        listed, fastest = self.question.candidates, dict[tuple[int, int], int]()
        for number in sorted(dict(self.points()), key=lambda n: self.outcomes[n].objective_s or 0.0):
            fastest.setdefault(_candidate_kind(listed[number]), number)

        def turn(number: int) -> tuple[float, ...]:
            one, lead = listed[number], fastest.get(_candidate_kind(listed[number]))
            far = 0.0 if lead is None else mesh_distance(one.mesh, listed[lead].mesh)
            return one.mesh.devices, -len(one.mesh.axes), far, number

        return sorted(numbers, key=turn)

    def start(self, number: int) -> Choice | None:
        """The choice of the nearest mesh of as many axes that has one."""
        one = self.question.candidates[number]
        near = [
            (mesh_distance(one.mesh, of.mesh), other)
            for other, outcome in self.outcomes.items()
            if outcome.choice is not None
            and _candidate_kind(of := self.question.candidates[other]) == _candidate_kind(one)
        ]
        return self.outcomes[min(near)[1]].choice if near else None

    def make_task(self, number: int) -> CandidateTask:
        one, question = self.question.candidates[number], self.question
        graph, profile = question.graphs[one.graph].document, question.offers[one.hardware].document
        return CandidateTask(graph, profile, one.mesh, question.request, self.start(number), self.cutoff_s(number))
