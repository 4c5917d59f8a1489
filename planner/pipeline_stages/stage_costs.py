"""What an interval of units costs as a stage: its plan, and lower bounds of any plan of it.

Each is a certified solve of the stage's graph (`planner.pipeline_stages.stage_graph`). Intervals of equal content are
solved once, and a bound of one is a bound of all that are equal (`planner.pipeline_stages.interval_classes`). More
micro-batches in flight never cost less: where the cost with many meets the bound with few, what lies between is known
without another solve. Of an
interval that is not solved, a bound is the sum of the bounds of the parts that it consists of: its plan, restricted to
a part, is a plan of the part that holds no more, and all parts together cost no more. For this, parts take no time for
ops that belong to no unit and that several parts may need. What several parts read is shared by its readers in one
layout, in which it may enter each part. The best sum is taken, of single units and of all intervals that were solved
so. The bound of a plan is that of its interval alone, in which all ops take time.

    step      S, passes of all micro-batches and one update, with the micro-batches in flight at a position
    short     the same of `few` micro-batches
    passes    P, all passes of one micro-batch, without update
    through   forward and backward pass of one micro-batch without late ops
    forward   forward pass of one micro-batch
    long      the same as `step` with `times_longer` times as many micro-batches
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import Choice
from planner.ir.graph import Graph
from planner.pipeline_stages.content import Content, Passes, describe_content, describe_ops, rename_choice, rename_plan
from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.interval_classes import IntervalClasses, Span
from planner.pipeline_stages.paths import PathPart
from planner.pipeline_stages.stage_graph import StageGraph, extract_stage
from planner.planning.deadline import Deadline, TimeLimitReached
from planner.planning.plan_types import Plan, Request
from planner.rewrite.accumulate import MAX_MICROBATCHES

Part = Literal["step", "short", "long"] | PathPart
Held = tuple[int, int]
Matrix = NDArray[np.float64]
ALONE: Held = (0, 0)
LONG = 64
"""How many times as many micro-batches a long step has at most."""
SHARE = 0.125
"""The share of the time that is left which one solve may take: a step has tens of them."""
PART_GAP = 1e-3
"""The gap to which lower bounds of parts of a step are solved, where the request's is smaller."""


@dataclass
class StageCosts:
    """Plans and bounds of intervals, solved when they are first asked for; times are in ps.

    shares       how many chunks of a rank share the memory limit
    certified    bounds by part, micro-batches in flight for those with the memory of a step, and interval
    bounds       lower bounds and costs of parts by content
    planned      bounds of plans by micro-batches in flight and interval
    is_hopeless  whether a unit is known that fits no stage
    """

    units: Units
    model: CostModel
    request: Request
    microbatches: int
    is_split: bool
    shares: int
    deadline: Deadline
    plans: dict[Content, Plan] = field(default_factory=dict)
    bounds: dict[Content, tuple[float, float]] = field(default_factory=dict)
    certified: dict[tuple[Part, Held], dict[Span, float]] = field(default_factory=dict)
    planned: dict[Held, dict[Span, float]] = field(default_factory=dict)
    solved_ops: int = 0
    is_hopeless: bool = False

    def __post_init__(self) -> None:
        self.stages: dict[tuple[int, int], StageGraph] = {}
        self.sums: dict[Part, Matrix] = {}
        self.matrices: dict[tuple[Part, Held], tuple[int, Matrix]] = {}
        self.classes = IntervalClasses(self.units)

    @property
    def times_longer(self) -> int:
        """How many times as many micro-batches as a step a long one has.

        One micro-batch accumulates nothing, so that more of them tell nothing of its passes.
        """
        if self.microbatches == 1:
            return 1
        return max(1, min(LONG, MAX_MICROBATCHES // self.microbatches))

    @property
    def few(self) -> int:
        """How many micro-batches a short step has."""
        return 2 if self.microbatches > 2 else 1

    def stage(self, first: int, last: int) -> StageGraph:
        if (first, last) not in self.stages:
            self.stages[first, last] = extract_stage(self.units, first, last)
        return self.stages[first, last]

    def plan(self, first: int, last: int, held: Held) -> Plan:
        """Return the plan of an interval with micro-batches in flight; one without a choice where none fits."""
        step = self.stage(first, last).make_step(self.microbatches, held, is_split=self.is_split)
        key = describe_content(step)
        if key not in self.plans:
            self.plans[key] = self._find_between(key) or self._plan_step(step)
        proven = self.plans[key].certificate
        bound = np.inf if proven.status == "infeasible" else proven.bound_s * 1e12
        if self.shares == 1:
            self.planned.setdefault(held, {}).update(dict.fromkeys(self.classes.list_equal(first, last), bound))
        return rename_plan(self.plans[key], step)

    def _find_between(self, key: Content) -> Plan | None:
        """Return a plan with at least as many micro-batches in flight that is proven as good with fewer, if one is."""
        *_, passes = key
        same = [(one[-1], plan) for one, plan in self.plans.items() if one[:-1] == key[:-1] and plan.choice is not None]
        lower = max((plan.certificate.bound_s for other, plan in same if _is_within(other, passes)), default=0.0)
        for other, plan in same:
            upper_s = plan.certificate.objective_s or np.inf
            if _is_within(passes, other) and upper_s - lower <= self.request.gap / 4 * upper_s:
                return replace(plan, certificate=replace(plan.certificate, bound_s=lower, gap=1 - lower / upper_s))
        return None

    def _plan_step(self, step: Graph) -> Plan:
        self.solved_ops += len(step.ops)
        limit = (self.request.memory_limit_bytes or self.model.hardware.memory_bytes) // self.shares
        left = self.deadline.left_s
        request = replace(
            self.request,
            microbatches=self.microbatches,
            global_batch=None,
            memory_limit_bytes=limit,
            gap=self.request.gap / 4,
            time_limit_s=None if left is None else max(SHARE * left, 0.1),
        )
        return pipeline.plan_step(step, self.model, request, known=self._list_known(step))

    def _list_known(self, step: Graph) -> list[Choice]:
        """Return the choices of plans of the same ops with other micro-batches in flight, to start from."""
        content = describe_ops(step)
        fitting = (plan for plan in self.plans.values() if plan.choice is not None)
        return [rename_choice(plan, step) for plan in fitting if describe_ops(plan.graph) == content]

    def certify(self, part: Part, first: int, last: int, *, held: Held = ALONE) -> bool:
        """Solve a part of an interval's step for a bound, and return whether it was not known yet.

        `held`: the micro-batches in flight, where the part has the memory of a whole step.
        """
        if (first, last) in self.certified.get((part, held), {}):
            return False
        bound = self._bound(part, self.stage(first, last), held)
        known = self.certified.setdefault((part, held), {})
        known.update(dict.fromkeys(self.classes.list_equal(first, last), bound))
        return True

    def _bound(self, part: Part, stage: StageGraph, held: Held = ALONE) -> float:
        match part:
            case "step":
                graph = stage.make_step(self.microbatches, held, is_split=self.is_split)
            case "short":
                graph = stage.make_step(self.few, held, is_split=self.is_split)
            case "long":
                graph = stage.make_step(self.times_longer * self.microbatches, held, is_split=self.is_split)
            case "through" if self.is_split:
                graph = stage.make_passes(lambda op, late: op.id not in late)
            case "forward":
                graph = stage.make_passes(lambda op, late: op.phase == "forward")
            case _:
                graph = stage.make_passes(lambda op, late: True)
        graph = replace(graph, free=self._list_free(graph))
        key = describe_content(graph)
        if key not in self.bounds:
            known = self._list_known(graph) if part in ("step", "short", "long") else []
            self.bounds[key] = self._find_bound_between(key) or self._solve_bound(graph, known)
        return self.bounds[key][0]

    def _find_bound_between(self, key: Content) -> tuple[float, float] | None:
        """Return bound and cost where those with fewer and with more micro-batches in flight agree."""
        same = [(one[-1], proven) for one, proven in self.bounds.items() if one[:-1] == key[:-1]]
        lower = max((bound for other, (bound, _) in same if _is_within(other, key[-1])), default=0.0)
        upper = min((cost for other, (_, cost) in same if _is_within(key[-1], other)), default=np.inf)
        return (lower, upper) if upper - lower <= self._part_gap * lower < np.inf else None

    @property
    def _part_gap(self) -> float:
        return max(self.request.gap / 4, PART_GAP)

    def _list_free(self, graph: Graph) -> frozenset[str]:
        """Return the ops that belong to no unit, and those that add up their values."""
        added = {value for op in graph.ops if op.id in self.units.unit_of for value in op.values}
        own = {op.id for op in graph.ops if op.id in self.units.unit_of or (op.accumulates and op.inputs[0] in added)}
        return frozenset(op.id for op in graph.ops) - own

    def _solve_bound(self, graph: Graph, known: list[Choice]) -> tuple[float, float]:
        """Return the lower bound and the cost found, both infinite where nothing fits."""
        self.solved_ops += len(graph.ops)
        left = self.deadline.left_s
        request = replace(
            self.request,
            microbatches=1,
            global_batch=None,
            gap=self._part_gap,
            time_limit_s=None if left is None else max(SHARE * left, 0.1),
        )
        try:
            solution = pipeline.solve_choice(graph, self.model, request, known=known).solution
        except TimeLimitReached:
            return 0.0, np.inf
        cost = np.inf if solution.cost is None else float(solution.cost)
        return (np.inf if solution.status == "infeasible" else float(solution.bound)), cost

    def count_known(self) -> int:
        """Return how many bounds are known, which only grows."""
        return sum(map(len, (*self.certified.values(), *self.planned.values())))

    def matrix(self, part: Part, held: Held = ALONE) -> Matrix:
        """Return lower bounds of all intervals `[first, last]`: the largest sums of those of their parts."""
        certified = {least: table for (name, least), table in self.certified.items() if name == part}
        solved, alone = _list_known(certified, held), _list_known(self.planned if part == "step" else {}, held)
        state = len(solved) + len(alone)
        if (part, held) not in self.matrices or self.matrices[part, held][0] != state:
            bounds = _raise(_sum_parts(_raise(self._sum_units(part), solved)), alone)
            self.matrices[part, held] = state, bounds
        return self.matrices[part, held][1]

    def _sum_units(self, part: Part) -> Matrix:
        if part not in self.sums:
            each = self._bound_units(part)
            self.is_hopeless |= bool(np.isinf(each).any())
            self.sums[part] = np.cumsum([0.0, *np.where(np.isinf(each), 0.0, each)])
        bounds: Matrix = self.sums[part][None, :] - self.sums[part][:, None]
        return bounds

    def _bound_units(self, part: Part) -> NDArray[np.float64]:
        """Return the bounds of all single units, each class of equal ones solved once."""
        each = np.full(self.units.count, np.nan)
        for unit in range(self.units.count):
            if np.isnan(each[unit]):
                bound = self._bound(part, self.stage(unit, unit + 1))
                each[[first for first, _ in self.classes.list_equal(unit, unit + 1)]] = bound
        return each


def _is_within(one: Passes, other: Passes) -> bool:
    """Return whether as many micro-batches pass as in the other, with no more of them in flight."""
    return one[0] == other[0] and one[1] <= other[1] and one[2] <= other[2]


def _list_known(tables: Mapping[Held, Mapping[Span, float]], held: Held) -> list[tuple[Span, float]]:
    """Return the bounds with at most so many micro-batches in flight."""
    fewer = (table for least, table in tables.items() if least[0] <= held[0] and least[1] <= held[1])
    return [item for table in fewer for item in table.items()]


def _raise(bounds: Matrix, known: Iterable[tuple[Span, float]]) -> Matrix:
    for span, bound in known:
        bounds[span] = max(bounds[span], bound)
    return bounds


def _sum_parts(bounds: Matrix) -> Matrix:
    """Return the largest sums of bounds over the ways to part each interval."""
    for cut in range(1, len(bounds) - 1):
        both = bounds[:cut, cut, None] + bounds[cut, None, cut + 1 :]
        bounds[:cut, cut + 1 :] = np.maximum(bounds[:cut, cut + 1 :], both)
    return bounds
