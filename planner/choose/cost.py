"""Cost model: the time of each instruction, in whole picoseconds, so that sums are exact.

    op          max(flops / flop rate, bytes read and written / memory rate) + launch        (roofline;
                Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 2009).
                Where the profile has a fitted class of kernels for the op, its efficiency depends on the local shape; a
                calibrated profile has measured times instead (`planner.choose.op_prices`).
                A lookup reads no more bytes of its table than its result has; what accumulates also reads its result.
                Where blocks travel while it runs: `planner.choose.ring_cost`
    collective  its time on the links that its group crosses (`planner.choose.hardware.network`)
    all_slice   a local copy, as is an exchange in which nothing is sent
    exchange    as a collective, by the messages and bytes of the busiest device (`planner.reshard.traffic`), on the
                slowest link of its mesh axes

Times are those of the device with the largest shard (the first one). Over several axes a collective runs flat, as one
group, or hierarchically, axis by axis, whichever is faster. What overlap changes is counted in `planner.judge.overlap`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from planner.choose.hardware import Hardware
from planner.choose.hardware.network import Link, TierSpan, collective_s, exchange_s
from planner.choose.op_prices import LocalWork, OpPricing, op_variant
from planner.choose.operand_layouts import OperandLayouts
from planner.choose.ring_cost import RingStep, RingTraffic, ring_s
from planner.ir.collectives import COLLECTIVES, Collective, Kind
from planner.ir.graph import Op, TensorType
from planner.ir.indexing import LoopKind, Option
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Sharding, block_size, shard_elements
from planner.ops import OPS, indexed_loops
from planner.reshard.traffic import ReshardTraffic

PICO = 1e-12
MAX_PERMUTED_AXES = 4
"""Axes of a collective that are tried in every order; of more, only the mesh's order and its reverse."""
Integers = NDArray[np.int64]
VERSION = 15


@dataclass(frozen=True)
class CostModel:
    """Times of ops and collectives on a mesh of a hardware profile."""

    mesh: Mesh
    hardware: Hardware

    @cached_property
    def tier_spans(self) -> tuple[tuple[TierSpan, ...], ...]:
        """The links that each mesh axis crosses, innermost first."""
        return self.hardware.tier_spans(self.mesh)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The outermost link of each mesh axis."""
        return tuple(
            next((link for link, count in reversed(each) if count > 1), each[0].link) for each in self.tier_spans
        )

    @cached_property
    def priced(self) -> dict[object, int]:
        """The times in ps of ops that programs ran, by what determines them."""
        return {}

    def op_ps(self, op: Op, operands: tuple[TensorType, ...], option: Option) -> int:
        """Return the time of an op's largest local part. An op without a row costs its memory traffic."""
        return int(self.options_ps(op, operands, (option,), *self._layouts(op, option))[0])

    def op_work(self, op: Op, operands: tuple[TensorType, ...], option: Option) -> LocalWork:
        """Return the flops of an op's largest local part, the bytes it reads and writes, and the sizes of its loops."""
        return self._work(op, operands, (option,), *self._layouts(op, option))[0]

    def options_ps(
        self,
        op: Op,
        operands: tuple[TensorType, ...],
        options: Sequence[Option],
        read: Sequence[OperandLayouts],
        made: Sequence[OperandLayouts],
    ) -> Integers:
        """Return the time of each option of an op; `read` and `made` are its layouts of operands and results."""
        row = OPS.get(op.op)
        if row and row.is_view:
            return np.zeros(len(options), np.int64)
        work = self._work(op, operands, options, read, made)
        # Most options have equal work: a few distinct local parts are priced.
        distinct = list(dict.fromkeys(work))
        seconds = OpPricing.of(op, self.hardware).seconds(distinct)
        if op.rule.ring:
            times = dict(zip(distinct, seconds, strict=True))
            listed = zip(work, options, strict=True)
            return np.array(
                [_to_ps(self._ring_s(op, operands, option, op_s=times[each])) for each, option in listed], np.int64
            )
        times_ps = dict(zip(distinct, map(_to_ps, seconds), strict=True))
        return np.array([times_ps[each] for each in work], np.int64)

    def ring_traffic(self, op: Op, operands: tuple[TensorType, ...], option: Option) -> RingTraffic:
        """Return what an op under an option sends while it runs."""
        return RingTraffic.of(op, operands, option, mesh=self.mesh, shard_bytes=self.shard_bytes)

    def _ring_s(self, op: Op, operands: tuple[TensorType, ...], option: Option, *, op_s: float) -> float:
        """Return the seconds of an op that takes `op_s` over all blocks, some of which may travel meanwhile."""
        traffic, row = self.ring_traffic(op, operands, option), OPS.get(op.op)
        if not traffic.blocks or not op.rule.ring:
            return op_s
        shares = row.ring.shares if row and row.ring else (1.0,) * op.rule.ring.rounds
        sizes = [traffic.block_bytes(results=results) for results in (False, True)]
        sent = [max(exchange_s(self.links[axis], 1, size) for axis in traffic.axes) for size in (*sizes, sum(sizes))]
        step = RingStep(self.hardware.launch_s, *sent)
        return ring_s(op_s, shares, traffic.devices, step=step, results_travel=sizes[1] > 0)

    def _layouts(self, op: Op, option: Option) -> tuple[list[OperandLayouts], list[OperandLayouts]]:
        read = (op.rule.read_sharding(i, option, self.mesh) for i in range(len(op.rule.operands)))
        results = (op.rule.result_sharding(i, option) for i in range(len(op.results)))
        return [OperandLayouts.of([each]) for each in read], [OperandLayouts.of([each]) for each in results]

    def _work(
        self,
        op: Op,
        operands: tuple[TensorType, ...],
        options: Sequence[Option],
        read: Sequence[OperandLayouts],
        made: Sequence[OperandLayouts],
    ) -> list[LocalWork]:
        """Return flops, bytes and local loops of each option."""
        looked_up = looked_up_operands(op)
        written = [sum(sizes) for sizes in zip(*map(self._port_bytes, op.results, made), strict=True)]
        moved = [size * (2 if op.accumulates else 1) for size in written]
        for i, sizes in enumerate(map(self._port_bytes, operands, read)):
            least = map(min, sizes, written) if i in looked_up else sizes
            moved = [size + more for size, more in zip(moved, least, strict=True)]
        if op.rule.ring:
            others = (self.ring_traffic(op, operands, option).read_bytes for option in options)
            moved = [size + more for size, more in zip(moved, others, strict=True)]
        local = self._local_sizes(op, options)
        row, names = OPS.get(op.op), list(op.rule.sizes)
        # Options with loops of equal local sizes are counted once.
        flops = {
            each: row.count_flops(dict(zip(names, each, strict=True)), op.attrs) if row else 0.0
            for each in dict.fromkeys(local)
        }
        return [LocalWork(flops[each], size, each) for each, size in zip(local, moved, strict=True)]

    def _local_sizes(self, op: Op, options: Sequence[Option]) -> list[tuple[int, ...]]:
        """Return the sizes that each option leaves of the loops, in the order of `Rule.sizes`.

        A device meets all blocks of a loop that travels.
        """
        options = [op.rule.with_ring_axes(option, ()) for option in options] if op.rule.ring else options
        loops = [(k, loop) for k, loop in enumerate(op.rule.loops) if loop.kind is not LoopKind.LINEAR]
        counts = [
            {
                axes: block_size(loop.size, self.mesh.group_size(axes))
                for axes in dict.fromkeys(option[k] for option in options)
            }
            for k, loop in loops
        ]
        return [tuple(count[option[k]] for count, (k, _) in zip(counts, loops, strict=True)) for option in options]

    def _port_bytes(self, kind: TensorType, port: OperandLayouts) -> list[int]:
        """Return the bytes of the largest shard under each strategy."""
        sizes = [self.shard_bytes(kind, state) for state in port.states]
        return [sizes[state] for state in port.classes.tolist()]

    def move_ps(self, move: Collective, source: Sharding, kind: TensorType) -> int:
        """Return the time of a collective on the largest shard of `source`."""
        if move.to is not None:
            return self._exchange_ps(move, source, move.to, kind=kind)
        local = self.shard_bytes(kind, source)
        if not move.definition.sends:
            return _to_ps(self._copy_s(kind, move.target(source)))
        return _to_ps(self._transfer_s(move, float(local)))

    def exchanges_ps(self, sources: Sequence[Sharding], targets: Sequence[Sharding], kind: TensorType) -> Integers:
        """Return the times `[sources, targets]` of exchanges between shardings with equal partial axes, if any."""
        return self._distinct_exchanges_ps(
            ReshardTraffic.of(sources, targets, kind.shape, self.mesh), sources, targets, kind=kind
        )

    def _exchange_ps(self, move: Collective, source: Sharding, target: Sharding, *, kind: TensorType) -> int:
        if (source.partial, source.reduction) == (target.partial, target.reduction):
            return int(self.exchanges_ps([source], [target], kind)[0, 0])
        counted = ReshardTraffic.of_pair(source, target, kind.shape, mesh=self.mesh, axes=move.axes)
        return int(self._distinct_exchanges_ps(counted, [source], [target], kind=kind, over=move.axes)[0, 0])

    def _distinct_exchanges_ps(
        self,
        moved: ReshardTraffic,
        sources: Sequence[Sharding],
        targets: Sequence[Sharding],
        *,
        kind: TensorType,
        over: Axes = (),
    ) -> Integers:
        latency, pace, step, fill = (np.zeros(moved.sent.shape) for _ in range(4))
        for axis, link in enumerate(self.links):
            ids: dict[object, int] = {}
            sides = (sources,) if targets is sources else (sources, targets)
            roles = [np.array([ids.setdefault(_axis_role(each, axis), len(ids)) for each in side]) for side in sides]
            # An axis that does the same in both shardings has no part: blocks stay within the group along it.
            takes_part = (roles[0][:, None] != roles[-1][None, :]) | (axis in over)
            latency = np.maximum(latency, takes_part * link.latency_s)
            pace = np.maximum(pace, takes_part / link.bandwidth)
            step = np.maximum(step, takes_part * link.step_s)
            fill = np.maximum(fill, takes_part * link.fill_s)
        busiest = np.maximum(moved.received, moved.sent) * kind.itemsize
        wire = busiest * pace
        # 2 sqrt(fill * wire) is the least time lost to filling a pipeline, over the number of pieces that a message
        # is cut into.
        sent = latency + moved.messages * step + 2 * np.sqrt(fill * wire) + wire
        copied = np.array([self._copy_s(kind, target) for target in targets])
        seconds = np.where(busiest > 0, sent, copied)
        return np.rint(seconds / PICO).astype(np.int64)

    def _copy_s(self, kind: TensorType, sharding: Sharding) -> float:
        """Return the time in which a device copies its shard from what it holds."""
        return 2 * self.shard_bytes(kind, sharding) / self.hardware.bytes_rate + self.hardware.launch_s

    def shard_bytes(self, kind: TensorType, sharding: Sharding) -> int:
        sizes = self._shard_bytes.setdefault(kind, {})
        if sharding not in sizes:
            sizes[sharding] = shard_elements(sharding, kind.shape, self.mesh) * kind.itemsize
        return sizes[sharding]

    @cached_property
    def _shard_bytes(self) -> dict[TensorType, dict[Sharding, int]]:
        return {}

    def _transfer_s(self, move: Collective, local: float) -> float:
        axes = [self.tier_spans[axis] for axis in move.axes]
        flat = [
            tuple(TierSpan(each[0].link, math.prod(part.fanout for part in each)) for each in zip(*axes, strict=True))
        ]
        orders = (tuple(axes), tuple(axes[::-1])) if len(axes) > MAX_PERMUTED_AXES else tuple(permutations(axes))
        orders = tuple(dict.fromkeys(orders)) if len(axes) > 1 else ()
        return min(_grouped_collective_s(move.kind, list(order), local) for order in (flat, *orders))


def price_key(op: Op) -> str:
    """Return what an op's cost depends on beside rule and types: its variant, and attributes that change flops."""
    row = OPS.get(op.op)
    return op_variant(op) + (repr(sorted(op.attrs.items())) if row and row.flops_fraction else "")


def looked_up_operands(op: Op) -> set[int]:
    """Return the operands that an op reads at given positions only: no more bytes than it computes."""
    indexes = indexed_loops(op)
    if not indexes:
        return set()
    tables = {i for i, term in enumerate(op.rule.operands) for dim in term if set(dim.loops) & set(indexes.values())}
    return tables - set(indexes)


def _axis_role(sharding: Sharding, axis: int) -> object:
    """Return what a mesh axis does in a sharding. An exchange runs over the axes whose roles differ."""
    for dim, axes in enumerate(sharding.split_axes):
        if axis in axes:
            return dim, axes, sharding.halo_or_offsets(dim)
    return sharding.reduction if axis in sharding.partial else None


def _grouped_collective_s(kind: Kind, groups: list[tuple[TierSpan, ...]], local: float) -> float:
    """Return the seconds of a collective in one phase per group. A gather grows the shard, a scatter shrinks it."""
    row = COLLECTIVES[kind]
    if row.phases and len(groups) > 1:
        (scatter, gather), n = row.phases, math.prod(each.fanout for group in groups for each in group)
        scattered = COLLECTIVES[scatter].resize(local, n)
        return _grouped_collective_s(scatter, groups, local) + _grouped_collective_s(gather, groups[::-1], scattered)
    seconds = 0.0
    for group in groups:
        seconds += collective_s(kind, group, local)
        local = row.resize(local, math.prod(each.fanout for each in group))
    return seconds


def _to_ps(seconds: float) -> int:
    return round(seconds / PICO)
