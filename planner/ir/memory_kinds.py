"""The kinds of memory that the bytes of a program belong to, instruction by instruction.

    parameter, buffer, constant,    graph inputs by their kind; an op's result that takes an input's place in the next
    input, optimizer_state          run (`Input.next`) is of that input's kind
    gradient                        a result of the backward pass that the update reads or the graph returns
    activation                      any other result of the forward pass, recomputed for the backward pass or not
    temporary                       any other result of the backward pass or the update
    communication_buffer            the result of a collective while its operand is also live, and blocks of an op that
                                    travel, beside those that the device keeps (`planner.ir.ring`)

Where a collective is the last to read its operand, its result is a buffer while the collective runs. From then on it
is of the operand's kind, because it is the only copy left. Every byte that `planner.ir.accounting` counts is of
exactly one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.ir.accounting import Accounting
from planner.ir.graph import Graph
from planner.ir.left_values import find_left_values
from planner.ir.program import Reshard

Integers = NDArray[np.int64]
BUFFER = "communication_buffer"


@dataclass(frozen=True, slots=True)
class LiveRange:
    """The instructions, first through last, during which a value is of one kind.

    count  how many of it are held: other micro-batches in flight have their own, and blocks that travel have buffers
    """

    value: str
    kind: str
    first: int
    last: int
    count: int = 1

    def contains(self, instruction: int) -> bool:
        return self.first <= instruction <= self.last


def find_value_kinds(graph: Graph) -> dict[str, str]:
    """Return the memory kind of every value of a graph."""
    kinds = {entry.id: entry.kind for entry in graph.inputs}
    kinds |= {entry.next: entry.kind for entry in graph.inputs if entry.next is not None}
    read = {value for op in graph.ops if op.phase == "update" for value in op.inputs} | set(graph.outputs)
    for op in graph.ops:
        early = op.phase == "forward" or op.recompute_of is not None
        for value in op.values:
            late = "gradient" if op.phase == "backward" and value in read else "temporary"
            kinds.setdefault(value, "activation" if early else late)
    return kinds


def find_live_ranges(account: Accounting) -> list[LiveRange]:
    """List the live ranges of every value.

    A value is live from the instruction that makes it (an argument or accumulator: from the first) through the last
    that reads it. Those of other micro-batches in flight have ranges of their own (`planner.ir.left_values`).
    """
    program = account.program
    kinds, first, last = find_value_kinds(program.graph), program.first_held, program.last_use
    kind_of = {name: kinds[name] for name, _ in program.arguments}
    ranges = [LiveRange(name, kind, 0, last[name]) for name, kind in kind_of.items()]
    for place, instruction in enumerate(program.instructions):
        if isinstance(instruction, Reshard):
            name, is_last_read = instruction.result, last[instruction.operand] == place
            kind_of[name] = kind_of[instruction.operand] if is_last_read else BUFFER
            ranges.append(LiveRange(name, BUFFER, place, place if is_last_read else last[name]))
            ranges += (
                [LiveRange(name, kind_of[name], place + 1, last[name])] if is_last_read and last[name] > place else []
            )
        else:
            kind_of |= {
                name: kinds[value] for name, value in zip(instruction.results, instruction.op.values, strict=True)
            }
            ranges += [LiveRange(name, kind_of[name], first[name], last[name]) for name in instruction.results]
            travelling = instruction.list_ring_blocks(program.mesh)
            ranges += [LiveRange(name, BUFFER, place, place, blocks.buffers) for name, blocks in travelling]
    turns = (np.flatnonzero(np.diff(account.most_waiting)) + 1).tolist()
    for left in find_left_values(program):
        for start, stop in left.spans:
            ends = [start, *(p for p in turns if start < p < stop), stop] if start < stop else []
            ranges += [
                LiveRange(left.name, kind_of[left.name], begin, end - 1, left.counts[account.most_waiting[begin]])
                for begin, end in pairwise(ends)
            ]
    return ranges


def count_live_by_kind(account: Accounting, device: int) -> Mapping[str, Integers]:
    """Count the bytes that a device holds of every kind.

    Return arrays `[instructions + 1]` by kind: while each instruction runs, and at the end.
    """
    count, number = len(account.program.instructions) + 1, account.classes.find(device)
    change: dict[str, Integers] = {}
    for live in find_live_ranges(account):
        size = live.count * int(account.value_bytes[live.value][number])
        steps = change.setdefault(live.kind, np.zeros(count + 1, np.int64))
        steps[live.first] += size
        steps[live.last + 1] -= size
    return {kind: np.cumsum(steps)[:count] for kind, steps in change.items()}
