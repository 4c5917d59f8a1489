"""The pipeline from a graph and a mesh to a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice, Formulation, formulate
from planner.choose.hardware import Hardware
from planner.choose.rematerialization import find_recomputable_ops
from planner.errors import InvalidRequest
from planner.ir.graph import Graph, check_sizes
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.baselines import encode_baseline, list_baselines
from planner.judge.program_choice import encode_choice, recompute_everything, unshare_inputs
from planner.planning.folded_solve import OnProgress, Starts
from planner.planning.objectives import ObjectiveResult, ObjectiveSolver
from planner.planning.overlap_pricing import choose_by_schedule
from planner.planning.plan_types import BaselineFigures, Certificate, Plan, Request
from planner.rewrite.materialize import materialize
from planner.run.executor import Progress
from planner.run.validate import validate

GIB = 1 << 30


def plan(
    graph: Graph,
    mesh: Mesh,
    hardware: Hardware,
    *,
    request: Request | None = None,
    on_progress: OnProgress | None = None,
    known: Collection[Choice] = (),
) -> Plan:
    """Plan a graph on a mesh: find the best sharding, and prove how far from optimal it can be.

    request      objective, memory limit and limits of the search; None: the defaults
    on_progress  called with the incumbent, the bound and the gap while the solver runs
    known        choices to start from; the plan is no worse than those of them that are feasible

    An infeasible plan has no choice and no program. Raises InvalidGraph for a graph with dims of unknown size.
    """
    request = request or Request()
    check_sizes(graph)
    model = CostModel(mesh, hardware)
    limit = request.memory_limit_bytes or hardware.memory_bytes
    plain = formulate(graph, model, limit)
    named = {each.name: encode_baseline(plain, each) for each in list_baselines(graph, mesh)}
    layouts = {name: plain.decode(start) for name, start in named.items() if start is not None}
    solver = _make_solver(
        graph, model, request, known=[*layouts.values(), *known], on_progress=on_progress, plain=plain
    )
    result = solver.solve()
    analysis = None if result.choice is None else Analysis(write_program(result.question, result.choice), model)
    figures = _price_baselines(plain, layouts)
    fastest = Plan(graph, model, request, _make_certificate(result), result.choice, analysis, figures)
    if request.objective != "time":
        return fastest
    return choose_by_schedule(
        fastest,
        result.question,
        layouts,
        ask=lambda priced: solver.make_formulation(priced, limit),
        write=write_program,
    )


def solve_choice(
    graph: Graph, model: CostModel, request: Request, *, known: Collection[Choice] = (), cutoff: int | None = None
) -> ObjectiveResult:
    """Find a choice and its bound, without a plan. A step that takes `cutoff` ps or longer is of no interest."""
    return replace(_make_solver(graph, model, request, known=known), cutoff=cutoff).solve()


def _make_solver(
    graph: Graph,
    model: CostModel,
    request: Request,
    *,
    known: Collection[Choice],
    on_progress: OnProgress | None = None,
    plain: Formulation | None = None,
) -> ObjectiveSolver:
    """Return the solver of a request; `plain` is its formulation without recomputation, where it is known."""
    late = find_recomputable_ops(graph) if request.recompute == "auto" else {}
    limit = request.memory_limit_bytes or model.hardware.memory_bytes

    def make_formulation(priced: CostModel, most: int) -> Formulation:
        if plain is not None and not late and priced is model and most == limit:
            return plain
        return formulate(graph, priced, most, late=late)

    make_starts = partial(_encode_starts, known)
    return ObjectiveSolver(make_formulation, make_starts, write_program, model, limit, request, on_progress)


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


def validate_plan(
    plan: Plan, backend: str = "numpy", shrinking: str = "auto", *, on_progress: Progress | None = None
) -> Plan:
    """Run a plan on logical devices and return it with the verdict. An infeasible plan is returned unchanged."""
    if plan.analysis is None:
        return plan
    return replace(plan, verdict=validate(plan.analysis.program, backend, shrinking, on_progress=on_progress))


def _make_certificate(result: ObjectiveResult) -> Certificate:
    solution = result.solution
    return Certificate(
        status=solution.status,
        objective_s=None if solution.cost is None else solution.cost * PICO,
        bound_s=solution.bound * PICO,
        gap=solution.gap,
        wall_s=solution.wall_s,
        reason=solution.reason,
        reproducible=solution.reproducible,
        memory_price_s_per_gib=solution.memory_price * PICO * GIB,
        least_limit_bytes=solution.min_feasible_limit,
        least_limit_bound_bytes=solution.min_feasible_limit_bound,
        folding=result.folding,
        objective_bytes=result.least_bytes,
        bound_bytes=result.bound_bytes,
    )


def _price_baselines(question: Formulation, layouts: Mapping[str, Choice]) -> tuple[BaselineFigures, ...]:
    figures = []
    for name, choice in layouts.items():
        numbers = Analysis(write_program(question, choice), question.model)
        fits = numbers.peak_bytes <= (question.problem.limit or 0)
        figures.append(
            BaselineFigures(name, numbers.step_ps * PICO, numbers.collective_bytes, numbers.peak_bytes, fits)
        )
    return tuple(figures)
