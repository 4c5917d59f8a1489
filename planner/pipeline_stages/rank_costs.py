"""What intervals of units cost as stages of each rank: ranks with equal meshes share their plans and bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.choose.cost import CostModel
from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.interval_bounds import Matrix, Span
from planner.pipeline_stages.stage_costs import Part, StageCosts
from planner.pipeline_stages.stage_plans import ALONE, Held
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Plan


@dataclass(frozen=True)
class RankCosts:
    """The costs of intervals by stage.

    by_rank  of each rank, or one for all of them
    """

    by_rank: tuple[StageCosts, ...]

    @classmethod
    def of(cls, models: Sequence[CostModel], price: Callable[[CostModel], StageCosts]) -> RankCosts:
        """Return the costs of ranks with cost models, one for each rank or one for all; `price`: those with a model."""
        costs = {mesh: price(model) for mesh, model in {model.mesh: model for model in models}.items()}
        return cls(tuple(costs[model.mesh] for model in models))

    def of_stage(self, number: int) -> StageCosts:
        """Return the costs of a stage's rank."""
        return self.by_rank[number % len(self.by_rank)]

    @property
    def first(self) -> StageCosts:
        """The costs of the first rank, with what is the same for all."""
        return self.by_rank[0]

    @property
    def distinct(self) -> list[StageCosts]:
        """The costs of each mesh."""
        return list({id(costs): costs for costs in self.by_rank}.values())

    @property
    def units(self) -> Units:
        return self.first.units

    @property
    def deadline(self) -> Deadline:
        """When solves end."""
        return self.first.deadline

    def end_at(self, deadline: Deadline) -> None:
        """Let all solves end at a deadline."""
        for costs in self.distinct:
            costs.deadline = deadline

    def bound_units(self, deadline: Deadline) -> None:
        """Solve single units that bounds need until a deadline (`StageCosts.bound_units`)."""
        for costs in self.distinct:
            costs.bound_units(deadline)

    def count_known(self) -> int:
        """Return how many bounds are known, which only grows."""
        return sum(costs.count_known() for costs in self.distinct)

    @property
    def solved_ops(self) -> int:
        """Ops in the graphs that were planned or bounded."""
        return sum(costs.solved_ops for costs in self.distinct)

    @property
    def is_hopeless(self) -> bool:
        """Whether a unit is known that fits no stage of any rank."""
        return bool(np.logical_and.reduce([costs.is_unfit for costs in self.distinct]).any())

    def matrix(self, number: int, part: Part, held: Held = ALONE) -> Matrix:
        """Return lower bounds of all intervals as a stage; infinite with a unit that fits other ranks only."""
        costs = self.of_stage(number)
        bounds = costs.matrix(part, held)
        if not costs.is_unfit.any() or self.is_hopeless:
            return bounds
        before = np.cumsum([0, *costs.is_unfit])
        return np.where(before[None, :] > before[:, None], np.inf, bounds)

    def find_standards(
        self, spans: Sequence[Span], held: Sequence[Held], until: Deadline
    ) -> tuple[list[Plan], int] | None:
        """Return plans of the intervals of all stages in standard layouts, and the time of all in the fastest ones.

        None: they never fit together. Raises TimeLimitReached after a deadline.
        """
        ranks = len(spans) // self.first.shares
        plans, fastest = dict[int, Plan](), 0
        for rank in range(ranks):
            own = range(rank, len(spans), ranks)
            found = self.of_stage(rank).find_standards([(spans[n], held[n]) for n in own], until)
            if found is None:
                return None
            plans |= dict(zip(own, found[0], strict=True))
            fastest += found[1]
        return [plans[number] for number in range(len(spans))], fastest
