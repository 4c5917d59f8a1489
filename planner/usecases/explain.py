"""Explain a plan: formulate its problem again, with the hardware profile it was priced with, and judge its choice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation
from planner.choose.op_prices import OpPricing
from planner.ir.graph import Graph
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.baselines import encode_baseline
from planner.judge.break_even import BreakEven, RepricedProgram, find_break_evens
from planner.judge.explain import Decision, explain_decision
from planner.judge.program_choice import encode_choice, recover_choice
from planner.judge.standard_layouts import list_baselines
from planner.judge.what_if import ForcedOptionCost, WhatIf
from planner.planning.deadline import Deadline, ProgressReporter
from planner.planning.plan_types import Request
from planner.planning.timed_formulation import formulate_in_time


@dataclass(frozen=True)
class PlanExplanation:
    """A planned program and its certificate: no plan is faster than `bound_ps`.

    What needs the choice problem raises TimeLimitReached where the deadline of `report` is over before.
    """

    program: Program
    model: CostModel
    limit_bytes: int
    bound_ps: int
    request: Request
    report: ProgressReporter = field(default_factory=lambda: ProgressReporter(Deadline(), None))

    @cached_property
    def analysis(self) -> Analysis:
        return Analysis(self.program, self.model)

    @cached_property
    def question(self) -> Formulation:
        graph, deadline = self.program.graph, self.report.deadline
        return formulate_in_time(graph, self.model, self.limit_bytes, deadline=deadline, report=self.report)

    @cached_property
    def strategies(self) -> list[int]:
        return encode_choice(self.question, recover_choice(self.program))

    def break_evens(self) -> list[BreakEven]:
        """Return the changes of links at which another named layout that fits would be faster."""
        plan = RepricedProgram.of("plan", self.analysis)
        layouts = []
        for named in list_baselines(self.program.graph, self.program.mesh):
            self.report.deadline.check()
            start = encode_baseline(self.question, named)
            if start is not None and start != self.strategies:
                program = pipeline.write_program(self.question, self.question.decode(start))
                analysis = Analysis(program, self.model)
                if analysis.peak_bytes <= self.limit_bytes:
                    layouts.append(RepricedProgram.of(named.name, analysis))
        return find_break_evens(plan, layouts, self.model)

    def explain_decision(self, name: str) -> Decision:
        """Explain the decision on an op, or on the layout of a graph input."""
        return explain_decision(self.question, self.strategies, name)

    def price_source(self, name: str) -> str | None:
        """Return what the price of an op rests on; None for what is no op."""
        op = next((op for op in self.program.graph.ops if op.id == name), None)
        return OpPricing.of(op, self.model.hardware).source if op else None

    def force_options(self, decision: Decision, most: int, seconds: float) -> dict[int, ForcedOptionCost]:
        """Return by strategy what the `most` cheapest other options cost when all else may follow."""
        request = self.request
        forcing = WhatIf(self.question, self.strategies, self.bound_ps, request.gap, request.deterministic)
        listed = [each.strategy for each in decision.option_costs if each.strategy != decision.chosen][:most]
        return forcing.force_options(decision.node, listed, seconds)


def analyze_at_least_limit(
    graph: Graph, model: CostModel, least_bytes: int, *, request: Request, seconds: float
) -> Analysis | None:
    """Analyze a plan within the least memory limit known to be feasible: its peak is what prevents a smaller one.

    Returns None where no plan is found within `seconds`.
    """
    within_limit = replace(request, memory_limit_bytes=least_bytes, time_limit_s=seconds, objective="time")
    return pipeline.plan(graph, model.mesh, model.hardware, request=within_limit).analysis
