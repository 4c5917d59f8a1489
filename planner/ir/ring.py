"""Blocks of operands and results that pass round a ring of n devices while one op runs (`planner.ir.indexing`).

In each of its rounds the op runs n steps, on the block that a device began with and on those that the others did. After
each step but the last, blocks of operands move on to the next device of the ring. Blocks of results begin as zeros in
the last round, gather a term at every step, and move once more, home:

    received    rounds (n - 1) blocks of every operand that travels, n of every result
    buffers     an operand's block in use and the one that arrives, min(2, n - 1), beside the device's own;
                a result's block that arrives, beside the one that becomes the result
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.ir.indexing import Option, Rule
from planner.ir.mesh import Mesh


@dataclass(frozen=True, slots=True)
class RingBlocks:
    """The blocks of one operand or result.

    place     number of the operand or result
    received  blocks that each device receives
    buffers   blocks that it holds at most, beside its own
    """

    is_result: bool
    place: int
    received: int
    buffers: int


def list_ring_blocks(rule: Rule, option: Option, mesh: Mesh) -> tuple[RingBlocks, ...]:
    """Return what travels under an option; nothing: the op runs without sending."""
    axes = rule.ring_axes(option)
    if rule.ring is None or not axes:
        return ()
    n, (operands, results) = mesh.group_size(axes), rule.travelling
    return (
        *(RingBlocks(False, place, rule.ring.rounds * (n - 1), min(2, n - 1)) for place in operands),
        *(RingBlocks(True, place, n, 1) for place in results),
    )
