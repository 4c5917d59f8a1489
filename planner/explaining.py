"""A plan explained: its question asked again, with the profile it was priced with, and its own choice as the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.judge.analysis import Analysis
from planner.judge.baselines import baselines, strategies
from planner.judge.choices import choice_of, strategies_of
from planner.judge.explain import Decision, decision
from planner.judge.forcing import Forced, Forcing
from planner.judge.sensitivity import Repriced, Turn, turns
from planner.model.graph import Graph
from planner.model.program import Program
from planner.plans import Request


@dataclass(frozen=True)
class Explained:
    """A planned program and what is known about it; `bound_ps`: no plan is faster."""

    program: Program
    model: CostModel
    limit_bytes: int
    bound_ps: int
    request: Request

    @cached_property
    def analysis(self) -> Analysis:
        return Analysis(self.program, self.model)

    @cached_property
    def question(self) -> Formulation:
        return formulate(self.program.graph, self.model, self.limit_bytes)

    @cached_property
    def strategies(self) -> list[int]:
        return strategies_of(self.question, choice_of(self.program))

    def turns(self) -> list[Turn]:
        """At what change of a link another known layout that fits would win."""
        plan = Repriced.of("plan", self.program, self.model)
        found = []
        for named in baselines(self.program.graph, self.program.mesh):
            start = strategies(self.question, named)
            if start is not None and start != self.strategies:
                program = pipeline.written(self.question, self.question.decode(start))
                if Analysis(program, self.model).peak_bytes <= self.limit_bytes:
                    found.append(Repriced.of(named.name, program, self.model))
        return turns(plan, found, self.model)

    def decision(self, name: str) -> Decision:
        """On an op, or the layout of a graph input."""
        return decision(self.question, self.strategies, name)

    def forced(self, asked: Decision, most: int, seconds: float) -> dict[int, Forced]:
        """What the options that come next, as many as `most`, cost in all; by strategy."""
        request = self.request
        forcing = Forcing(self.question, self.strategies, self.bound_ps, request.gap, request.deterministic)
        listed = [each.strategy for each in asked.considered if each.strategy != asked.chosen][:most]
        return forcing.forced(asked.node, listed, seconds)


def at_least_limit(
    graph: Graph, model: CostModel, least_bytes: int, request: Request, seconds: float
) -> Analysis | None:
    """A program that fits the least limit known to be feasible: what fills it is what blocks a smaller one."""
    asked = replace(request, memory_limit_bytes=least_bytes, time_limit_s=seconds, objective="time")
    return pipeline.plan(graph, model.mesh, model.hardware, asked).analysis
