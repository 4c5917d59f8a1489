"""One search for a plan: formulate, price the standard layouts, solve, write the program, prove.

A search may join neighbouring mesh axes (`planner.choose.axis_units`): it is much smaller, and what it finds is a plan
of the whole search too. So where time is limited, or the whole search is large, a search with COARSE_UNITS units comes
first (`list_levels`). Its bound says nothing of plans that split by the axes apart; while only that search is done, the
bound is the roofline's (`planner.judge.roofline_bounds`).

Where values may be recomputed, the same problem without recomputation is solved first and its answer is a start, so
that allowing recomputation never makes the plan worse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

import solvers
from planner.choose.axis_units import MAX_ORDERED_AXES, AxisUnits
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice, Formulation
from planner.choose.rematerialization import find_recomputable_ops
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.baselines import encode_baseline
from planner.judge.program_choice import encode_choice, recompute_everything, unshare_inputs
from planner.judge.standard_layouts import Baseline
from planner.planning.certify import certify, describe_layout, leave_recomputation
from planner.planning.deadline import Deadline, ProgressReporter, TimeLimitReached
from planner.planning.folded_solve import Starts
from planner.planning.last_changes import improve_result
from planner.planning.objectives import ObjectiveResult, ObjectiveSolver
from planner.planning.overlap_pricing import choose_by_schedule
from planner.planning.plan_types import BaselineFigures, Plan, Request
from planner.planning.timed_formulation import formulate_in_time
from planner.rewrite.materialize import materialize

COARSE_UNITS = 2
# Share of the time that is left for the search with joined axes, and the gap at which it ends.
COARSE_SHARE, COARSE_GAP = 0.25, 0.01
# The share of the time left after formulating in which standard layouts are priced; the others follow the search.
LAYOUTS_SHARE = 0.2
# What follows formulating, before the solver improves on what is known, takes about this share of its time.
REST_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Fit:
    """The step of a choice that fits the memory limit, and its peak bytes per device."""

    step_s: float
    peak_bytes: int


@dataclass(frozen=True)
class PlanSearch:
    """A search for the plan of a request.

    deadline   when the plan has to be found; writing it comes after
    units      the mesh axes that options put on loops as one
    baselines  the standard layouts
    pinned     those with the pins of the graph, where it has any
    share      of the time that is left after formulating, for the solver
    """

    graph: Graph
    model: CostModel
    request: Request
    deadline: Deadline
    report: ProgressReporter
    units: AxisUnits
    baselines: Sequence[Baseline] = ()
    pinned: Sequence[Baseline] = ()
    share: float = 1.0

    @property
    def limit(self) -> int:
        """The memory limit in bytes per device."""
        return self.request.find_limit(self.model.hardware)

    @cached_property
    def recomputable(self) -> Mapping[str, int]:
        return find_recomputable_ops(self.graph) if self.request.recompute == "auto" else {}

    def begin_coarsely(self) -> PlanSearch:
        """Return the search with a share of the time that is left, and with a larger gap."""
        return replace(self, request=replace(self.request, gap=max(self.request.gap, COARSE_GAP)), share=COARSE_SHARE)

    def find_plan(self, known: Collection[Choice], coarse: Plan | None = None) -> Plan:
        """Return the best plan found, no worse than the known choices and the plan of a coarser search.

        Raises TimeLimitReached while formulating, or after it, where there is a coarser plan and too little time to
        look for a better one.
        """
        began_s = self.deadline.elapsed_s
        plain = self._formulate(self.model, self.limit, late={})
        if coarse is not None and self.deadline.is_within(REST_SHARE * (self.deadline.elapsed_s - began_s)):
            raise TimeLimitReached
        self.report.begin("pricing standard layouts")
        layouts = self.name_layouts(plain)
        priced = {} if coarse is None else {each.name: each for each in coarse.baselines}
        most_left_s = (1 - LAYOUTS_SHARE) * (self.deadline.left_s or 0.0)
        priced = _price_layouts(plain, layouts, priced, deadline=self.deadline.sooner(most_left_s))
        deadline = self.deadline.sooner((1 - self.share) * (self.deadline.left_s or 0.0))
        pinned = (encode_baseline(plain, each) for each in self.pinned)
        completed = [plain.decode(start) for start in pinned if start is not None]
        starts = [*layouts.values(), *completed, *([coarse.choice] if coarse and coarse.choice else []), *known]
        result = improve_result(
            self._solve(plain, starts, deadline),
            self.request,
            write=write_program,
            limit=self.limit,
            deadline=deadline,
        )
        self.report.begin("writing the plan")
        analysis = (
            None if result.choice is None else Analysis(write_program(result.question, result.choice), self.model)
        )
        certificate = certify(result, self.graph, self.model, request=self.request)
        figures = tuple(_price_layouts(plain, layouts, priced, deadline=self.deadline).values())
        fastest = Plan(self.graph, self.model, self.request, certificate, result.choice, analysis, figures)
        compared = layouts | {f"a choice known before ({n})": choice for n, choice in enumerate(known, 1)}
        return replace(self, deadline=deadline).apply_overlap(fastest, result.question, compared)

    def name_layouts(self, plain: Formulation) -> dict[str, Choice]:
        """Return the standard layouts that a formulation without recomputation offers."""
        named = {each.name: encode_baseline(plain, each) for each in self.baselines}
        return {name: plain.decode(start) for name, start in named.items() if start is not None}

    def apply_overlap(self, fastest: Plan, question: Formulation, compared: Mapping[str, Choice]) -> Plan:
        """Return the plan with the least sum of instructions, or one that overlap makes faster where that counts."""
        if self.request.objective != "time":
            return fastest
        return choose_by_schedule(
            fastest,
            question,
            compared,
            ask=lambda priced: self._formulate(priced, self.limit, late=self.recomputable),
            write=write_program,
            report=replace(self.report, deadline=self.deadline),
        )

    def find_choice(self, known: Collection[Choice], cutoff: int | None = None) -> ObjectiveResult:
        """Return the best choice found, without a plan. A step that takes `cutoff` ps or longer is of no interest.

        Raises TimeLimitReached while formulating.
        """
        deadline = self.deadline.sooner((1 - self.share) * (self.deadline.left_s or 0.0))
        solver = self._make_solver(known, deadline, late=self.recomputable)
        return replace(solver, cutoff=cutoff).solve()

    def find_fit(self) -> Fit | None:
        """Return the step and memory of the best choice found, or None where none is found that fits in the time."""
        try:
            result = self.find_choice(())
        except TimeLimitReached:
            return None
        if result.solution.assignment is None or result.solution.cost is None:
            return None
        peak_bytes = solvers.evaluate(result.question.problem, result.solution.assignment).peak
        return Fit(result.solution.cost * PICO, peak_bytes)

    def _solve(self, plain: Formulation, known: Collection[Choice], deadline: Deadline) -> ObjectiveResult:
        """Solve the request; where recomputation is allowed, first without it, in half of the time that is left."""
        if not self.recomputable:
            return self._make_solver(known, deadline, late={}, plain=plain).solve()
        half = deadline.sooner((deadline.left_s or 0.0) / 2)
        kept = self._make_solver(known, half, late={}, plain=plain).solve()
        known = [*known, *([] if kept.choice is None else [kept.choice])]
        try:
            recomputed = self._make_solver(known, deadline, late=self.recomputable).solve()
        except TimeLimitReached:
            if kept.choice is None:
                raise
            return leave_recomputation(kept, self.graph, self.model)
        limits = [each.solution.min_feasible_limit for each in (kept, recomputed)]
        least = min((limit for limit in limits if limit is not None), default=None)
        if recomputed.choice is None:
            return replace(recomputed, solution=replace(recomputed.solution, min_feasible_limit=least))
        return recomputed

    def _make_solver(
        self,
        known: Collection[Choice],
        deadline: Deadline,
        *,
        late: Mapping[str, int],
        plain: Formulation | None = None,
    ) -> ObjectiveSolver:
        """Return the solver of the request; `plain`: its formulation without recomputation, where there is one."""

        def make_formulation(priced: CostModel, most: int) -> Formulation:
            is_plain = plain is not None and not late and priced is self.model and most == self.limit
            question = plain if is_plain and plain is not None else self._formulate(priced, most, late=late)
            self.report.begin("searching", is_whole=self.share == 1.0)
            return question

        return ObjectiveSolver(
            make_formulation,
            partial(_encode_starts, known),
            write_program,
            self.model,
            self.limit,
            self.request,
            deadline,
            self.report,
        )

    def _formulate(self, priced: CostModel, most: int, *, late: Mapping[str, int]) -> Formulation:
        return formulate_in_time(
            self.graph, priced, most, late=late, units=self.units, deadline=self.deadline, report=self.report
        )


def start_deadline(request: Request, started_s: float | None = None) -> Deadline:
    """Return the deadline of a command that began at a time of the monotonic clock, or begins now (None).

    The limit of a deterministic request counts work instead.
    """
    limit_s = None if request.deterministic else request.time_limit_s
    return Deadline(limit_s) if started_s is None else Deadline(limit_s, started_s)


def is_pinned(graph: Graph) -> bool:
    """Return whether a graph asks for shardings of values or for options of ops."""
    return bool(graph.annotations) or any(op.option is not None for op in graph.ops)


def list_levels(graph: Graph, mesh: Mesh, request: Request) -> list[AxisUnits]:
    """Return the units of the searches, the last those of the mesh.

    Pins may name axes apart, and a deterministic request reads no clock: these are searched in one level.
    """
    whole = AxisUnits.of(mesh)
    is_long = request.time_limit_s is not None or len(whole.units) > MAX_ORDERED_AXES
    if len(whole.units) <= COARSE_UNITS or is_pinned(graph) or request.deterministic or not is_long:
        return [whole]
    return [whole.join(mesh, COARSE_UNITS), whole]


def write_program(question: Formulation, choice: Choice) -> Program:
    """Write a choice as an SPMD program."""
    graph, listed = question.with_clones.prune(choice.options)
    return materialize(
        graph,
        question.model.mesh,
        choice.inputs,
        options=choice.options,
        shared=choice.shared,
        outputs=choice.outputs,
        route=lambda value, source, target: question.distances[value].shortest_path(source, target),
        listed=listed,
    )


def _price_layouts(
    question: Formulation,
    layouts: Mapping[str, Choice],
    priced: Mapping[str, BaselineFigures],
    *,
    deadline: Deadline,
) -> dict[str, BaselineFigures]:
    """Return the figures of the named layouts that are known already, or can be found before the deadline."""
    figures: dict[str, BaselineFigures] = {}
    for name, choice in layouts.items():
        if name in priced:
            figures[name] = priced[name]
        elif deadline.left_s != 0.0:
            figures[name] = _price_baseline(question, name, choice)
    return figures


def _price_baseline(question: Formulation, name: str, choice: Choice) -> BaselineFigures:
    return describe_layout(name, Analysis(write_program(question, choice), question.model), question.problem.limit or 0)


def _encode_starts(known: Collection[Choice], question: Formulation) -> Starts:
    """Encode the known choices that a question offers.

    Where it allows recomputation, each is also tried with everything recomputed, and this without shared copies of
    graph inputs.
    """
    if question.with_clones.clone_of:
        again = [recompute_everything(question, choice) for choice in known]
        known = [*known, *again, *map(unshare_inputs, again)]
    starts = []
    for choice in known:
        with suppress(InvalidRequest):
            starts.append(encode_choice(question, choice))
    return starts
