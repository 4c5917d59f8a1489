"""Collective optimisation: program in, program out, the same results for no more time.

Every pass sweeps once over a program and replaces what it knows by what is not dearer at a price given by the
caller. `optimize` runs them in turn until none finds anything. That ends: a rewrite leaves fewer all_reduces, or
fewer instructions, or moves a reduction or gather down or a slice up, and no pass does the opposite.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from planner.model.accounts import live_bytes
from planner.model.program import Program
from planner.rewrite.optimize.cancel import cancel_gathers_and_slices
from planner.rewrite.optimize.constants import slice_constants
from planner.rewrite.optimize.dead import drop_dead
from planner.rewrite.optimize.decompose import decompose_all_reduce
from planner.rewrite.optimize.draft import Price, free
from planner.rewrite.optimize.fold import fold_collectives
from planner.rewrite.optimize.gather_down import move_all_gather_down
from planner.rewrite.optimize.reassociate_reduce import reassociate_all_reduce
from planner.rewrite.optimize.reassociate_scatter import reassociate_reduce_scatter
from planner.rewrite.optimize.scatter import scatter_all_reduce
from planner.rewrite.optimize.share import share_collectives

__all__ = [
    "PASSES",
    "Price",
    "cancel_gathers_and_slices",
    "decompose_all_reduce",
    "drop_dead",
    "fold_collectives",
    "free",
    "move_all_gather_down",
    "optimize",
    "reassociate_all_reduce",
    "reassociate_reduce_scatter",
    "scatter_all_reduce",
    "share_collectives",
    "slice_constants",
]

Pass = Callable[[Program, Price], Program]
PASSES: tuple[Pass, ...] = (
    drop_dead,
    share_collectives,
    cancel_gathers_and_slices,
    fold_collectives,
    scatter_all_reduce,
    reassociate_all_reduce,
    reassociate_reduce_scatter,
    move_all_gather_down,
    decompose_all_reduce,
    slice_constants,
)


def optimize(program: Program, price: Price, limit: int | None = None) -> Program:
    """The program at the fixed point of all passes.

    `limit` is in bytes per device: what a pass makes of a program is left where it needs more than that and more
    than the program did.
    """
    peak = _peak(program) if limit is not None else 0
    idle = 0
    for improve in cycle(PASSES):
        better = improve(program, price)
        needed = _peak(better) if limit is not None else 0
        if better is program or (limit is not None and needed > max(limit, peak)):
            idle += 1
        else:
            program, peak, idle = better, needed, 0
        if idle == len(PASSES):
            break
    return program


def _peak(program: Program) -> int:
    return int(live_bytes(program).max())
