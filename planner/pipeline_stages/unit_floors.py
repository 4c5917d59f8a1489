"""Lower bounds of single units that need no solve: the least time of their ops (`planner.judge.roofline_bounds`).

They bound what a step takes while there is no time to solve more, and say how to cut it before anything is solved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import PICO, CostModel
from planner.ir.graph import Op
from planner.judge.roofline_bounds import list_least_s
from planner.pipeline_stages.cuts import Units

Times = NDArray[np.float64]


@dataclass(frozen=True)
class UnitFloors:
    """The least time in ps of each unit's forward pass, of all its passes, and of its update."""

    units: Units
    model: CostModel
    forward: Times = field(init=False)
    passes: Times = field(init=False)
    update: Times = field(init=False)

    def __post_init__(self) -> None:
        listed = list(self._list_times())
        for name, phases in (("forward", {"forward"}), ("passes", {"forward", "backward"}), ("update", {"update"})):
            wanted = [(unit, time) for unit, op, time in listed if op.phase in phases]
            numbers, times = zip(*wanted, strict=True) if wanted else ((), ())
            total = np.bincount(np.array(numbers, np.intp), np.array(times, float), self.units.count)
            object.__setattr__(self, name, np.floor(total))

    def _list_times(self) -> Iterator[tuple[int, Op, float]]:
        graph = self.units.graph
        times = list_least_s(graph, self.model.hardware, self.model.mesh.devices)
        for op, least_s in zip(graph.ops, times, strict=True):
            if op.id in self.units.unit_of:
                yield self.units.unit_of[op.id], op, max(0.0, least_s / PICO)

    def bound_step(self, microbatches: int) -> Times:
        """Return the least time of a step of so many micro-batches."""
        return microbatches * self.passes + self.update
