"""The one way data flows: graph and mesh in, plan out. Each line is an arrow of the design."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice, Formulation, formulate
from planner.choose.hardware import Hardware
from planner.choose.recompute import candidates
from planner.errors import InvalidRequest
from planner.folding import OnProgress, Starts
from planner.judge.analysis import Analysis
from planner.judge.baselines import baselines, strategies
from planner.judge.choices import as_stored, repeating, strategies_of
from planner.model.graph import Graph, check_sizes
from planner.model.mesh import Mesh
from planner.model.program import Program
from planner.objectives import Answer, Asking
from planner.overlapping import ranked
from planner.plans import Certificate, Figures, Plan, Request
from planner.rewrite.materialize import materialize
from planner.run.devices import Progress
from planner.run.validate import validate

GIB = 1 << 30


def plan(
    graph: Graph,
    mesh: Mesh,
    hardware: Hardware,
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
    named = {each.name: strategies(plain, each) for each in baselines(graph, mesh)}
    layouts = {name: plain.decode(start) for name, start in named.items() if start is not None}
    asking = _asking(graph, model, request, [*layouts.values(), *known], on_progress, plain)
    found = asking.answer()
    analysis = None if found.choice is None else Analysis(written(found.question, found.choice), model)
    figures = _figures(plain, layouts)
    made = Plan(graph, model, request, _certificate(found), found.choice, analysis, figures)
    if request.objective != "time":
        return made
    return ranked(made, found.question, layouts, lambda priced: asking.ask(priced, limit), written)


def answer(
    graph: Graph, model: CostModel, request: Request, known: Collection[Choice] = (), cutoff: int | None = None
) -> Answer:
    """The choice alone, with what is proven of it; a step that takes `cutoff` ps is of no interest."""
    return replace(_asking(graph, model, request, known), cutoff=cutoff).answer()


def _asking(
    graph: Graph,
    model: CostModel,
    request: Request,
    known: Collection[Choice],
    on_progress: OnProgress | None = None,
    plain: Formulation | None = None,
) -> Asking:
    """All that is asked with; `plain`: the question of the request where nothing is made again, if it is there."""
    late = candidates(graph) if request.recompute == "auto" else {}
    limit = request.memory_limit_bytes or model.hardware.memory_bytes

    def ask(priced: CostModel, most: int) -> Formulation:
        if plain is not None and not late and priced is model and most == limit:
            return plain
        return formulate(graph, priced, most, late)

    return Asking(ask, partial(_starts, known), written, model, limit, request, on_progress)


def _starts(kept: Collection[Choice], question: Formulation) -> Starts:
    """The choices that a question offers: all values kept, and where it may make some again, all made again, and this
    with no copy held of a graph input."""
    if question.doubled.first:
        again = [repeating(question, choice) for choice in kept]
        kept = [*kept, *again, *map(as_stored, again)]
    found = []
    for choice in kept:
        with suppress(InvalidRequest):
            found.append(strategies_of(question, choice))
    return found


def written(question: Formulation, choice: Choice) -> Program:
    """A choice as an SPMD program."""
    graph, listed = question.doubled.left(choice.options)
    return materialize(
        graph,
        question.model.mesh,
        choice.inputs,
        choice.options,
        choice.shared,
        choice.outputs,
        lambda value, source, target: question.distances[value].chain(source, target),
        listed,
    )


def validated(plan: Plan, backend: str = "numpy", shrinking: str = "auto", on_progress: Progress | None = None) -> Plan:
    """The plan with the verdict of having run it; an infeasible plan as it is."""
    if plan.analysis is None:
        return plan
    return replace(plan, verdict=validate(plan.analysis.program, backend, shrinking, on_progress=on_progress))


def _certificate(found: Answer) -> Certificate:
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
        least_limit_bytes=solution.least_limit,
        least_limit_bound_bytes=solution.least_limit_bound,
        folding=found.folding,
        objective_bytes=found.least_bytes,
        bound_bytes=found.bound_bytes,
    )


def _figures(question: Formulation, layouts: Mapping[str, Choice]) -> tuple[Figures, ...]:
    found = []
    for name, choice in layouts.items():
        numbers = Analysis(written(question, choice), question.model)
        fits = numbers.peak_bytes <= (question.problem.limit or 0)
        found.append(Figures(name, numbers.step_ps * PICO, numbers.collective_bytes, numbers.peak_bytes, fits))
    return tuple(found)
