"""Cost model of the objective bytes: those that a device receives in each collective.

With n devices in a group and B bytes in the largest shard, a collective costs

    all_gather      (n - 1) B           reduce_scatter, all_to_all      B (n - 1) / n
    all_reduce      2 B (n - 1) / n     all_slice                       0
    exchange        the bytes that the busiest device receives (`planner.reshard.traffic`)

These are the bytes that the executor counts (`planner.ir.collectives.count_received_elements`), except that uneven
shards are rounded up to whole blocks. An op costs what its blocks that travel bring (`planner.ir.ring`), and nothing
where none do, so that very different plans cost the same. With a price per
byte in ps, costs are times plus priced bytes: at a high enough price, the optimum is the fastest of the plans that move
the fewest bytes.
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
from planner.ir.sharding import Axes, Sharding
from planner.reshard.traffic import ReshardTraffic
from solvers import IMPOSSIBLE

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class VolumeModel(CostModel):
    """Costs in bytes, or in ps where a price per byte is given. Priced bytes are capped at IMPOSSIBLE."""

    byte_ps: int | None = None

    def options_ps(
        self,
        op: Op,
        operands: tuple[TensorType, ...],
        options: Sequence[Option],
        read: Sequence[OperandLayouts],
        made: Sequence[OperandLayouts],
    ) -> Integers:
        received = np.zeros(len(options), np.int64)
        if op.rule.ring:
            received[:] = [self.ring_traffic(op, operands, option).received_bytes for option in options]
        if self.byte_ps is None:
            return received
        priced = np.minimum(received.astype(np.float64) * self.byte_ps, IMPOSSIBLE).astype(np.int64)
        return priced + super().options_ps(op, operands, options, read=read, made=made)

    def move_ps(self, move: Collective, source: Sharding, kind: TensorType) -> int:
        if move.to is not None:
            return super().move_ps(move, source, kind)
        size = move.definition.ring_bytes(self.shard_bytes(kind, source), self.mesh.group_size(move.axes))
        if self.byte_ps is None:
            return size
        return min(size * self.byte_ps, IMPOSSIBLE) + super().move_ps(move, source, kind)

    def _distinct_exchanges_ps(
        self,
        moved: ReshardTraffic,
        sources: Sequence[Sharding],
        targets: Sequence[Sharding],
        *,
        kind: TensorType,
        over: Axes = (),
    ) -> Integers:
        size = moved.received * kind.itemsize
        if self.byte_ps is None:
            return size
        priced = np.minimum(size.astype(np.float64) * self.byte_ps, IMPOSSIBLE).astype(np.int64)
        return priced + super()._distinct_exchanges_ps(moved, sources, targets, kind=kind, over=over)
