"""Seconds of an op whose blocks pass round a ring of n devices (`planner.ir.ring`), while it computes.

A round does the share w of the op's own work, in n steps of c seconds, each with a launch. A step sends the blocks that
it works on (operands) and, in the last round, the results of the step before, so that it takes the longer of computing
and sending. x is the time to send to a neighbour: operands, results, or both:

    c = w (op_s - launch) / n + launch
    round        (n - 1) max(c, x_operands) + c
    last round   max(c, x_operands) + (n - 2) max(c, x_both) + max(c, x_results) + x_results    where results travel

`op_s` is that of the op over all blocks, for the device with the most work. That is a bound for causal attention, whose
other devices see fewer keys: a ring moves at the pace of its slowest device. The steps of the pipeline are those of
H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.ir.graph import Op, TensorType
from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.ir.ring import RingBlocks, list_ring_blocks
from planner.ir.sharding import Axes, Sharding


@dataclass(frozen=True, slots=True)
class RingTraffic:
    """What travels along some mesh axes while an op runs, each with the bytes of its largest block.

    devices  in the ring; 1 where nothing travels
    """

    axes: Axes
    devices: int
    blocks: tuple[tuple[RingBlocks, int], ...]

    @classmethod
    def of(
        cls,
        op: Op,
        operands: Sequence[TensorType],
        option: Option,
        *,
        mesh: Mesh,
        shard_bytes: Callable[[TensorType, Sharding], int],
    ) -> RingTraffic:
        """Return the traffic of an op under an option; `shard_bytes`: of the largest shard of a tensor."""

        def size(each: RingBlocks) -> int:
            if each.is_result:
                return shard_bytes(op.results[each.place], op.rule.result_sharding(each.place, option))
            return shard_bytes(operands[each.place], op.rule.operand_sharding(each.place, option))

        axes = op.rule.ring_axes(option)
        blocks = list_ring_blocks(op.rule, option, mesh)
        return cls(axes, mesh.group_size(axes), tuple((each, size(each)) for each in blocks))

    def block_bytes(self, *, results: bool) -> int:
        """Return the bytes of a device's blocks of operands, or of results."""
        return sum(size for each, size in self.blocks if each.is_result == results)

    @property
    def read_bytes(self) -> int:
        """Bytes of the blocks of other devices that a device reads, or adds to, in one round."""
        return (self.devices - 1) * sum(size for _, size in self.blocks)

    @property
    def received_bytes(self) -> int:
        """Bytes that a device receives."""
        return sum(each.received * size for each, size in self.blocks)

    @property
    def buffer_bytes(self) -> int:
        """Bytes that a device holds beside its operands and results."""
        return sum(each.buffers * size for each, size in self.blocks)


@dataclass(frozen=True, slots=True)
class RingStep:
    """Seconds to launch an op, and to send a device's blocks to its neighbour: of operands, results, or both."""

    launch_s: float
    operands_s: float
    results_s: float
    both_s: float


def ring_s(op_s: float, shares: Sequence[float], n: int, *, step: RingStep, results_travel: bool) -> float:
    """Return the seconds of an op that takes `op_s` over all blocks.

    shares           of the op's work that each round does
    n                devices of the ring, two or more
    results_travel   whether results go round in the last round
    """
    total, work_s = 0.0, max(op_s - step.launch_s, 0.0)
    for number, share in enumerate(shares, 1):
        compute = share * work_s / n + step.launch_s
        if results_travel and number == len(shares):
            total += max(compute, step.operands_s) + (n - 2) * max(compute, step.both_s)
            total += max(compute, step.results_s) + step.results_s
        else:
            total += (n - 1) * max(compute, step.operands_s) + compute
    return total
