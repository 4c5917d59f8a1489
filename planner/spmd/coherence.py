"""SPMD coherence: at a collective all processes are in the same state.

A collective that a pass removes must vanish from every path of every process. One list for all devices guarantees
that. Lists made per device (a pass that ran on each, code with branches) are checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from planner.errors import InvalidProgram
from planner.spmd.folding import is_pure
from planner.spmd.instruction import SpmdCall, SpmdInstruction
from planner.spmd.verify import op_def_of

Work = tuple[str, str]


def list_collectives(instructions: Sequence[SpmdInstruction]) -> list[Work]:
    """List the group collectives in order, as (what each does, where it stands), without queries and messages."""
    return [
        (f"{done.op} {sorted((key, str(value)) for key, value in done.attrs.items())}", done.where)
        for done in instructions
        if isinstance(done, SpmdCall) and is_pure(done) and {"mesh_axes", "split_axes"} & set(op_def_of(done).attrs)
    ]


def check_coherence(lists: Sequence[Sequence[SpmdInstruction]]) -> None:
    """Raise InvalidProgram, naming the first collective that a device does not reach together with device 0."""
    first = list_collectives(lists[0])
    for device, instructions in enumerate(lists):
        for mine, theirs in zip_longest(first, list_collectives(instructions)):
            if mine is None or theirs is None or mine[0] != theirs[0]:
                raise InvalidProgram(
                    "devices reach different collectives",
                    where=(mine or theirs)[1],
                    got=f"device {device}: {theirs[1] if theirs else 'none'}",
                    wanted=f"device 0: {mine[1] if mine else 'none'}",
                )
