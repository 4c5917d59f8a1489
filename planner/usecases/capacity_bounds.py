"""What is known of the candidates of a capacity search before any is planned: bounds, and what rules them out.

Time counts the overlap of the hardware, or of the request: bounds of the sum of a plan's instructions, as a solver
proves them, become bounds of its step (`planner.judge.overlap`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from planner.choose.cost import CostModel
from planner.choose.hardware import Hardware, parse_hardware
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.judge.mesh_candidates import MeshCandidate, TierCounts, devices_per_tier, refines
from planner.judge.mfu import model_flops, utilisation
from planner.judge.overlap import bound_overlapped_s, find_serial_cutoff_s
from planner.judge.roofline_bounds import Floor
from planner.judge.standard_layouts import check_layout
from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.tied_parameters import list_units
from planner.planning.plan_search import is_pinned
from planner.usecases.capacity_question import CapacityQuestion
from planner.usecases.capacity_stages import StepEstimate, bound_candidate, list_candidate_schedules


@dataclass
class CandidateBounds:
    """The bounds of a question's candidates, by number."""

    question: CapacityQuestion
    _models: dict[int, CostModel] = field(default_factory=dict)
    _estimates: dict[int, float] = field(default_factory=dict)

    @cached_property
    def hardware(self) -> tuple[Hardware, ...]:
        """The profile of each offer, with the overlap that the request asks for."""
        adjust = self.question.request.adjust_hardware
        return tuple(adjust(parse_hardware(offer.document)) for offer in self.question.offers)

    def prepare(self) -> None:
        """Count what bounds and figures are computed from, which takes seconds for a large graph."""
        self._floors, self._flops  # noqa: B018

    def floor(self, number: int) -> Floor:
        """Return the bounds that a candidate's graph, hardware, stages and devices have without any plan."""
        return self._floors[number]

    def bound_step_s(self, number: int, bound_s: float) -> float:
        """Return a lower bound on the step of a candidate whose instructions take at least `bound_s` in any plan."""
        return bound_overlapped_s(self._find_model(number), bound_s, self.floor(number).step_s)

    def find_serial_cutoff_s(self, number: int, step_s: float) -> float:
        """Return the sum of instructions from which on no plan of a candidate has a step below `step_s`."""
        return find_serial_cutoff_s(self._find_model(number), step_s, self.floor(number).step_s)

    def _find_model(self, number: int) -> CostModel:
        if number not in self._models:
            one = self.question.candidates[number]
            self._models[number] = CostModel(one.mesh, self.hardware[one.hardware])
        return self._models[number]

    @cached_property
    def _floors(self) -> dict[int, Floor]:
        """Lower bounds of each candidate, which depend on its numbers of devices and stages alone."""
        known: dict[tuple[int, int, int, int], Floor] = {}
        return {number: self._find_floor(one, known) for number, one in enumerate(self.question.candidates)}

    def _find_floor(self, one: MeshCandidate, known: dict[tuple[int, int, int, int], Floor]) -> Floor:
        key = one.graph, one.hardware, one.stages, one.mesh.devices
        if key not in known:
            recompute = self.question.request.recompute != "none"
            graphs = [self._graphs[one.graph]]
            if one.stages > 1:
                graphs = [self.question.build_step(units.graph) for units in self._units[one.graph]]
            hardware, schedules = self.hardware[one.hardware], self._list_schedules(one)
            floors = [bound_candidate(g, hardware, one, schedules=schedules, recompute=recompute) for g in graphs]
            known[key] = Floor(min(f.step_s for f in floors), min(f.peak_bytes for f in floors))
        return known[key]

    def estimate_step_s(self, number: int) -> float:
        """Return a guess of a candidate's step that says which one to plan first, and proves nothing."""
        if number not in self._estimates:
            one = self.question.candidates[number]
            hardware, batch = self.hardware[one.hardware], self.question.graphs[one.graph].batch
            least_s, schedules = self.floor(number).step_s, self._list_schedules(one)
            estimate = StepEstimate(least_s, batch, self._stored_bytes[one.graph], schedules)
            self._estimates[number] = estimate.estimate_s(one, hardware, self.find_memory_limit(number))
        return self._estimates[number]

    def has_stages(self, number: int) -> bool:
        """Return whether a candidate's graph has so many stages, and a schedule for them."""
        one, most = self.question.candidates[number], self._count_units(self.question.candidates[number])
        return one.stages == 1 or any(schedule.stages <= most for schedule in self._list_schedules(one))

    def has_layout(self, number: int) -> bool:
        """Return whether a candidate can have the layout that is asked for, if one is."""
        one, layout = self.question.candidates[number], self.question.request.layout
        try:
            if layout is not None:
                check_layout(self._graphs[one.graph], one.mesh, layout)
        except InvalidRequest:
            return False
        return True

    def is_refined(self, number: int, other: int) -> bool:
        """Return whether what is proven of the plans of another candidate, or that it has none, holds for a candidate.

        Pins name mesh axes: with them, proofs of other meshes do not hold.
        """
        if number == other:
            return True
        pair = self.question.candidates[number], self.question.candidates[other]
        kinds = [(each.graph, each.hardware, each.stages) for each in pair]
        if kinds[0] != kinds[1] or self._has_pins[pair[0].graph]:
            return False
        return refines(self._tier_counts[other], self._tier_counts[number])

    def find_memory_limit(self, number: int) -> int:
        """Return the memory limit in bytes per device of a candidate."""
        return self.question.request.find_limit(self.hardware[self.question.candidates[number].hardware])

    def find_mfu(self, number: int, step_s: float) -> float:
        """Return the model FLOPs utilization of a step of a candidate (`planner.judge.mfu`)."""
        one = self.question.candidates[number]
        return utilisation(self._flops[one.graph], self.hardware[one.hardware], one.devices, step_s=step_s)

    def _list_schedules(self, one: MeshCandidate) -> list[PipelineSchedule]:
        count, units = self._graphs[one.graph].microbatches, self._count_units(one)
        return list_candidate_schedules(self.question.pipeline, one.stages, count, units=units)

    def _count_units(self, one: MeshCandidate) -> int:
        """Return how many stages a candidate's graph can have at most."""
        return max((units.count for units in self._units.get(one.graph, ())), default=1)

    @cached_property
    def _stored_bytes(self) -> list[int]:
        """The bytes of one copy of all parameters and accumulated gradients of each graph."""
        return [
            sum(entry.type.bytes for entry in graph.inputs if entry.kind == "parameter")
            + sum(graph.types[value].bytes for op in graph.ops if op.accumulates for value in op.values)
            for graph in self._graphs
        ]

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
    def _has_pins(self) -> list[bool]:
        return [self.question.request.layout is not None or is_pinned(graph) for graph in self._graphs]

    @cached_property
    def _tier_counts(self) -> list[tuple[TierCounts, ...]]:
        return [devices_per_tier(one.mesh, self.hardware[one.hardware]) for one in self.question.candidates]

    @cached_property
    def _flops(self) -> list[dict[str, float]]:
        return [model_flops(graph) for graph in self._graphs]
