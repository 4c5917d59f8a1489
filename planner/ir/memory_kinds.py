"""What the bytes of a program are for, instruction by instruction.

    parameter, buffer, constant,    graph inputs by their kind; an op's result that takes an input's place in the next
    input, optimizer_state          run (`Input.next`) is of that input's kind
    gradient                        a result of the backward pass that the update reads, or the graph returns
    activation                      any other result of the forward pass, be it made again for the backward pass
    temporary                       any other result of the backward pass or the update
    communication_buffer            what a collective makes, beside what it was made of

Where a collective is the last to read its operand, its result is a buffer while it runs, and from then on of the
operand's kind: it is the only copy left. Every byte that `planner.ir.accounting` counts is of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.ir.accounting import Accounting
from planner.ir.graph import Graph
from planner.ir.program import Program, Reshard

Integers = NDArray[np.int64]
BUFFER = "communication_buffer"


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A value while it is of one kind: from an instruction through another."""

    value: str
    kind: str
    first: int
    last: int

    def contains(self, instruction: int) -> bool:
        return self.first <= instruction <= self.last


def find_value_kinds(graph: Graph) -> dict[str, str]:
    """The kind of every value of a graph."""
    found = {entry.id: entry.kind for entry in graph.inputs}
    found |= {entry.next: entry.kind for entry in graph.inputs if entry.next is not None}
    read = {value for op in graph.ops if op.phase == "update" for value in op.inputs} | set(graph.outputs)
    for op in graph.ops:
        early = op.phase == "forward" or op.recompute_of is not None
        for value in op.values:
            late = "gradient" if op.phase == "backward" and value in read else "temporary"
            found.setdefault(value, "activation" if early else late)
    return found


def find_live_ranges(program: Program) -> list[LiveRange]:
    """What every value is for, from the instruction that makes it (an argument: from the first) through the last that
    reads it."""
    kinds, last = find_value_kinds(program.graph), program.last_use
    of = {name: kinds[name] for name, _ in program.arguments}
    found = [LiveRange(name, kind, 0, last[name]) for name, kind in of.items()]
    for place, done in enumerate(program.instructions):
        if isinstance(done, Reshard):
            name, only = done.result, last[done.operand] == place
            of[name] = of[done.operand] if only else BUFFER
            found.append(LiveRange(name, BUFFER, place, place if only else last[name]))
            found += [LiveRange(name, of[name], place + 1, last[name])] if only and last[name] > place else []
        else:
            of |= {name: kinds[value] for name, value in zip(done.results, done.op.values, strict=True)}
            found += [LiveRange(name, of[name], place, last[name]) for name in done.results]
    return found


def count_live_by_kind(account: Accounting, device: int) -> Mapping[str, Integers]:
    """[instructions + 1] of every kind there is: bytes a device holds while an instruction runs, and at the end."""
    count, number = len(account.program.instructions) + 1, account.classes.find(device)
    change: dict[str, Integers] = {}
    for each in find_live_ranges(account.program):
        size = int(account.value_bytes[each.value][number])
        steps = change.setdefault(each.kind, np.zeros(count + 1, np.int64))
        steps[each.first] += size
        steps[each.last + 1] -= size
    return {kind: np.cumsum(steps)[:count] for kind, steps in change.items()}
