"""What a program costs where bytes count: those that a device receives in every collective.

With n devices a group and B = bytes of the largest shard, a collective costs

    all_gather      (n - 1) B           reduce_scatter, all_to_all      B (n - 1) / n
    all_reduce      2 B (n - 1) / n     all_slice                       0
    exchange        what the busiest device receives (`planner.reshard.traffic`)

which is what is counted (`planner.ir.collectives.count_received_elements`), but where shards are uneven, by what blocks
are rounded. An op costs nothing, so that very different plans cost the same; with a price of a byte in ps times count
beside: at a high enough one, of the plans that move least the fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel
from planner.choose.operand_layouts import OperandLayouts
from planner.ir.collectives import Collective
from planner.ir.graph import Op, TensorType
from planner.ir.indexing import Option
from planner.ir.sharding import Sharding
from planner.reshard.traffic import ReshardTraffic
from solvers import IMPOSSIBLE

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class VolumeModel(CostModel):
    """Costs in bytes, or, given the price of a byte, in ps; beyond what can be chosen at all a price rises no more."""

    byte_ps: int | None = None

    def options_ps(
        self,
        op: Op,
        operands: tuple[TensorType, ...],
        options: Sequence[Option],
        read: Sequence[OperandLayouts],
        made: Sequence[OperandLayouts],
    ) -> Integers:
        if self.byte_ps is None:
            return np.zeros(len(options), np.int64)
        return super().options_ps(op, operands, options, read=read, made=made)

    def move_ps(self, move: Collective, source: Sharding, kind: TensorType) -> int:
        if move.to is not None:
            return super().move_ps(move, source, kind)
        size = move.definition.ring_bytes(self.shard_bytes(kind, source), self.mesh.group_size(move.axes))
        if self.byte_ps is None:
            return size
        return min(size * self.byte_ps, IMPOSSIBLE) + super().move_ps(move, source, kind)

    def _distinct_exchanges_ps(
        self, moved: ReshardTraffic, sources: Sequence[Sharding], targets: Sequence[Sharding], *, kind: TensorType
    ) -> Integers:
        size = moved.received * kind.itemsize
        if self.byte_ps is None:
            return size
        priced = np.minimum(size.astype(np.float64) * self.byte_ps, IMPOSSIBLE).astype(np.int64)
        return priced + super()._distinct_exchanges_ps(moved, sources, targets, kind=kind)
