"""The one way data flows: graph and mesh in, plan out. Each line is an arrow of the design."""

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
    """The best sharding of a graph on a mesh, with what is proven about it; an infeasible plan has no program. None of
    the choices `known` that it offers is better."""
    request = request or Request()
    check_sizes(graph)
    model = CostModel(mesh, hardware)
    limit = request.memory_limit_bytes or hardware.memory_bytes
    plain = formulate(graph, model, limit)
    named = {each.name: encode_baseline(plain, each) for each in list_baselines(graph, mesh)}
    layouts = {name: plain.decode(start) for name, start in named.items() if start is not None}
    asking = _make_solver(
        graph, model, request, known=[*layouts.values(), *known], on_progress=on_progress, plain=plain
    )
    found = asking.solve()
    analysis = None if found.choice is None else Analysis(write_program(found.question, found.choice), model)
    figures = _price_baselines(plain, layouts)
    made = Plan(graph, model, request, _make_certificate(found), found.choice, analysis, figures)
    if request.objective != "time":
        return made
    return choose_by_schedule(
        made, found.question, layouts, ask=lambda priced: asking.make_formulation(priced, limit), write=write_program
    )


def solve_choice(
    graph: Graph, model: CostModel, request: Request, *, known: Collection[Choice] = (), cutoff: int | None = None
) -> ObjectiveResult:
    """The choice alone, with what is proven of it; a step that takes `cutoff` ps is of no interest."""
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
    """All that is asked with; `plain`: the question of the request where nothing is made again, if it is there."""
    late = find_recomputable_ops(graph) if request.recompute == "auto" else {}
    limit = request.memory_limit_bytes or model.hardware.memory_bytes

    def ask(priced: CostModel, most: int) -> Formulation:
        if plain is not None and not late and priced is model and most == limit:
            return plain
        return formulate(graph, priced, most, late=late)

    return ObjectiveSolver(ask, partial(_encode_starts, known), write_program, model, limit, request, on_progress)


def _encode_starts(kept: Collection[Choice], question: Formulation) -> Starts:
    """The choices that a question offers: all values kept, and where it may make some again, all made again, and this
    with no copy held of a graph input."""
    if question.with_clones.clone_of:
        again = [recompute_everything(question, choice) for choice in kept]
        kept = [*kept, *again, *map(unshare_inputs, again)]
    found = []
    for choice in kept:
        with suppress(InvalidRequest):
            found.append(encode_choice(question, choice))
    return found


def write_program(question: Formulation, choice: Choice) -> Program:
    """A choice as an SPMD program."""
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
    """The plan with the verdict of having run it; an infeasible plan as it is."""
    if plan.analysis is None:
        return plan
    return replace(plan, verdict=validate(plan.analysis.program, backend, shrinking, on_progress=on_progress))


def _make_certificate(found: ObjectiveResult) -> Certificate:
    solution = found.solution
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
        folding=found.folding,
        objective_bytes=found.least_bytes,
        bound_bytes=found.bound_bytes,
    )


def _price_baselines(question: Formulation, layouts: Mapping[str, Choice]) -> tuple[BaselineFigures, ...]:
    found = []
    for name, choice in layouts.items():
        numbers = Analysis(write_program(question, choice), question.model)
        fits = numbers.peak_bytes <= (question.problem.limit or 0)
        found.append(BaselineFigures(name, numbers.step_ps * PICO, numbers.collective_bytes, numbers.peak_bytes, fits))
    return tuple(found)
