"""What an interval of units costs as a stage: its plan, and lower bounds of any plan of it.

Plans are those of `planner.pipeline_stages.stage_plans`. Bounds are certified solves of parts of a stage's step, and a
bound of one interval is a bound of all that are equal (`planner.pipeline_stages.interval_classes`). More micro-batches
in flight never cost less: where the cost with many meets the bound with few, what lies between is known without another
solve. Of an interval that is not solved, a bound is the sum of the bounds of the parts that it consists of: its plan,
restricted to a part, is a plan of the part that holds no more, and all parts together cost no more. For this, parts
take no time for ops that belong to no unit and that several parts may need. What several parts read is shared by its
readers in one layout, in which it may enter each part. The best sum is taken, of single units and of all intervals that
were solved so. The bound of a plan is that of its interval alone, in which all ops take time. A unit that there was no
time to solve is bounded by the least time of its ops (`planner.pipeline_stages.unit_floors`).

    step      S, passes of all micro-batches and one update, with the micro-batches in flight at a position
    k         the same of k micro-batches: k P + U, as a path meets them
    loop      the passes of all micro-batches with the memory of a step, without the update
    passes    P, all passes of one micro-batch, without update
    through   forward and backward pass of one micro-batch without late ops
    forward   forward pass of one micro-batch
    long      the same as `step` with `times_longer` times as many micro-batches
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from planner import pipeline
from planner.choose.formulate import Choice
from planner.ir.graph import Graph
from planner.pipeline_stages.content import Content, describe_content
from planner.pipeline_stages.interval_bounds import Matrix, Span, raise_bounds, sum_parts
from planner.pipeline_stages.paths import PathPart
from planner.pipeline_stages.stage_graph import StageGraph
from planner.pipeline_stages.stage_plans import ALONE, SHARE, Held, StagePlans, is_within
from planner.pipeline_stages.unit_floors import Times, UnitFloors
from planner.planning.deadline import Deadline, TimeLimitReached
from planner.rewrite.accumulate import MAX_MICROBATCHES

Part = Literal["step", "loop", "long"] | PathPart | int
LONG = 64
"""How many times as many micro-batches a long step has at most."""
FEW = 2, 4
"""Micro-batches of short steps."""
UNIT_SHARE = 0.01
"""The share of the time that is left which a bound of a single unit may take."""
PART_GAP = 2.5e-4
"""The gap to which lower bounds of parts of a step are solved, where the request's is smaller."""


@dataclass
class StageCosts(StagePlans):
    """Plans and bounds of intervals, solved when they are first asked for; times are in ps.

    certified    bounds by part, micro-batches in flight for those with the memory of a step, and interval
    bounds       lower bounds and costs of parts by content
    is_unfit     which units are known to fit no stage
    """

    bounds: dict[Content, tuple[float, float]] = field(default_factory=dict)
    certified: dict[tuple[Part, Held], dict[Span, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unit_bounds: dict[Part, Times] = {}
        self.is_unfit = np.zeros(self.units.count, np.bool_)
        self.matrices: dict[tuple[object, ...], Matrix] = {}
        self.count_in_matrices = 0
        self.units_until = self.deadline if self.deadline.seconds is None else Deadline(0.0)

    def bound_units(self, deadline: Deadline) -> None:
        """Solve single units that bounds need until a deadline; before, and after it, the least time of ops counts.

        Without a time limit all are solved.
        """
        if self.deadline.seconds is not None:
            self.units_until = deadline

    @property
    def times_longer(self) -> int:
        """How many times as many micro-batches as a step a long one has.

        One micro-batch accumulates nothing, so that more of them tell nothing of its passes.
        """
        if self.microbatches == 1:
            return 1
        return max(1, min(LONG, MAX_MICROBATCHES // self.microbatches))

    @property
    def few(self) -> tuple[int, ...]:
        """The micro-batches of short steps."""
        return tuple(count for count in FEW if count < self.microbatches) or (1,)

    def count_microbatches(self, part: Part) -> int | None:
        """Return how many micro-batches a part has that is a step; None for one that is not."""
        counts: Mapping[Part, int] = {"step": self.microbatches, "long": self.times_longer * self.microbatches}
        return part if isinstance(part, int) else counts.get(part)

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

    def _bound(self, part: Part, stage: StageGraph, held: Held = ALONE, *, share: float = SHARE) -> float:
        count = self.count_microbatches(part)
        match part:
            case _ if count is not None:
                graph = stage.make_step(count, held, is_split=self.is_split)
            case "loop":
                graph = stage.make_loop(self.microbatches, held, is_split=self.is_split)
            case "through" if self.is_split:
                graph = stage.make_passes(lambda op, late: op.id not in late)
            case "forward":
                graph = stage.make_passes(lambda op, late: op.phase == "forward")
            case _:
                graph = stage.make_passes(lambda op, late: True)
        # What a part sends is what the next part of the same stage reads, in any layout and shared with other readers.
        graph = replace(graph, free=self._list_free(graph), sent=frozenset())
        key = describe_content(graph)
        if key not in self.bounds:
            known = [] if count is None else self._list_choices(graph, key)
            self.bounds[key] = self._find_bound_between(key) or self._solve_bound(graph, known, share)
        return self.bounds[key][0]

    def _find_bound_between(self, key: Content) -> tuple[float, float] | None:
        """Return bound and cost where those with fewer and with more micro-batches in flight agree."""
        same = [(one[-1], proven) for one, proven in self.bounds.items() if one[:-1] == key[:-1]]
        lower = max((bound for other, (bound, _) in same if is_within(other, key[-1])), default=0.0)
        upper = min((cost for other, (_, cost) in same if is_within(key[-1], other)), default=np.inf)
        return (lower, upper) if upper - lower <= self._part_gap * lower < np.inf else None

    @property
    def _part_gap(self) -> float:
        return max(self.request.gap / 4, PART_GAP)

    def _list_free(self, graph: Graph) -> frozenset[str]:
        """Return the ops that belong to no unit, and those that add up their values."""
        added = {value for op in graph.ops if op.id in self.units.unit_of for value in op.values}
        own = {op.id for op in graph.ops if op.id in self.units.unit_of or (op.accumulates and op.inputs[0] in added)}
        return frozenset(op.id for op in graph.ops) - own

    def _solve_bound(self, graph: Graph, known: list[Choice], share: float) -> tuple[float, float]:
        """Return the lower bound and the cost found, both infinite where nothing fits."""
        self.solved_ops += len(graph.ops)
        plain = replace(self.request, microbatches=1, global_batch=None, layout=None)
        request, _ = self._limit_time(replace(plain, gap=self._part_gap), share)
        try:
            solution = pipeline.solve_choice(graph, self.model, request, known=known).solution
        except TimeLimitReached:
            return 0.0, np.inf
        cost = np.inf if solution.cost is None else float(solution.cost)
        return (np.inf if solution.status == "infeasible" else float(solution.bound)), cost

    def count_known(self) -> int:
        """Return how many bounds are known, which only grows."""
        units = sum(int(np.count_nonzero(~np.isnan(each))) for each in self.unit_bounds.values())
        return units + sum(map(len, (*self.certified.values(), *self.planned.values())))

    def matrix(self, part: Part, held: Held = ALONE) -> Matrix:
        """Return lower bounds of all intervals `[first, last]`: the largest sums of those of their parts."""
        units = self._bound_units(part)
        certified = {least: table for (name, least), table in self.certified.items() if name == part}
        solved = _list_fewer(certified, held)
        count = self.count_microbatches(part)
        planned = {least: table for (number, least), table in self.planned.items() if number == count}
        alone = _list_fewer(planned, held)
        known = tuple(tuple((least, len(table)) for least, table in tables) for tables in (solved, alone))
        if self.count_in_matrices != (now := self.count_known()):
            self.matrices, self.count_in_matrices = {}, now
        state = part, *known
        if state not in self.matrices:
            summed = np.cumsum([0.0, *np.where(np.isinf(units), 0.0, units)])
            bounds: Matrix = summed[None, :] - summed[:, None]
            if solved:
                bounds = sum_parts(raise_bounds(bounds, (item for _, table in solved for item in table.items())))
            self.matrices[state] = raise_bounds(bounds, (item for _, table in alone for item in table.items()))
        return self.matrices[state]

    def _bound_units(self, part: Part) -> Times:
        """Return bounds of all single units; each class of equal ones is solved once, where there is time for it."""
        if part == "loop":
            return self.microbatches * self._bound_units("passes")
        each = self.unit_bounds.setdefault(part, np.full(self.units.count, np.nan))
        for unit in np.flatnonzero(np.isnan(each)).tolist():
            if np.isnan(each[unit]) and self.units_until.left_s != 0.0:
                bound = self._bound(part, self.stage(unit, unit + 1), share=UNIT_SHARE)
                each[[first for first, _ in self.classes.list_equal(unit, unit + 1)]] = bound
        self.is_unfit |= np.isinf(each)
        return np.fmax(each, self._floor_units(part))

    def _floor_units(self, part: Part) -> Times:
        if (count := self.count_microbatches(part)) is not None:
            return self._floors.bound_step(count)
        return self._floors.passes if part == "passes" else self._floors.forward

    @cached_property
    def _floors(self) -> UnitFloors:
        return UnitFloors(self.units, self.model)


def _list_fewer(tables: Mapping[Held, Mapping[Span, float]], held: Held) -> list[tuple[Held, Mapping[Span, float]]]:
    """Return the bounds with at most so many micro-batches in flight."""
    return [item for item in tables.items() if item[0][0] <= held[0] and item[0][1] <= held[1]]
