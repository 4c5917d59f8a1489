"""The one way data flows: graph and mesh in, plan out. Each line is an arrow of the design."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import solvers
from planner import folding
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice, Formulation, formulate
from planner.choose.hardware import Hardware
from planner.choose.recompute import candidates
from planner.folding import OnProgress, Starts
from planner.judge.analysis import Analysis
from planner.judge.baselines import baselines, strategies
from planner.judge.choices import as_stored, repeating, strategies_of
from planner.model.graph import Graph, check_sizes
from planner.model.mesh import Mesh
from planner.model.program import Program
from planner.overlapping import ranked
from planner.plans import Certificate, Figures, Folding, Plan, Request
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
) -> Plan:
    """The best sharding of a graph on a mesh, with what is proven about it; an infeasible plan has no program."""
    request = request or Request()
    check_sizes(graph)
    model = CostModel(mesh, hardware)
    limit = request.memory_limit_bytes or hardware.memory_bytes
    plain = formulate(graph, model, limit)
    known = {named.name: strategies(plain, named) for named in baselines(graph, mesh)}
    starts: Starts = [start for start in known.values() if start is not None]
    layouts = {name: plain.decode(start) for name, start in known.items() if start is not None}
    late = candidates(graph) if request.recompute == "auto" else {}
    question = formulate(graph, model, limit, late) if late else plain
    starts = _again(question, layouts.values()) if late else starts
    solution, folded = folding.solve(question.problem, request, starts, on_progress)
    choice = None if solution.choice is None else question.decode(solution.choice)
    analysis = None if choice is None else Analysis(written(question, choice), model)
    found = Plan(graph, model, request, _certificate(solution, folded), choice, analysis, _figures(plain, layouts))
    return ranked(found, question, layouts, lambda priced: formulate(graph, priced, limit, late), written)


def _again(question: Formulation, kept: Collection[Choice]) -> Starts:
    """Choices of the plain question in the one that may make values again: all kept, all made again, and this with no
    copy held of a graph input."""
    again = [repeating(question, choice) for choice in kept]
    return [strategies_of(question, choice) for choice in (*kept, *again, *map(as_stored, again))]


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


def _certificate(solution: solvers.Solution, folded: Folding | None) -> Certificate:
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
        folding=folded,
    )


def _figures(question: Formulation, layouts: Mapping[str, Choice]) -> tuple[Figures, ...]:
    found = []
    for name, choice in layouts.items():
        numbers = Analysis(written(question, choice), question.model)
        fits = numbers.peak_bytes <= (question.problem.limit or 0)
        found.append(Figures(name, numbers.step_ps * PICO, numbers.collective_bytes, numbers.peak_bytes, fits))
    return tuple(found)
