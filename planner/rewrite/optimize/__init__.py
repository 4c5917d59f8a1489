"""Collective optimisation: program in, program out, with the same results and no higher price.

Every pass sweeps once over a program and replaces patterns by instructions that cost no more at a price given by the
caller. `optimize` runs the passes in turn until none finds anything. That terminates: every rewrite leaves fewer
all_reduces, or fewer instructions, or moves a reduction or gather down or a slice up, and no pass does the opposite.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from planner.ir.accounting import Accounting
from planner.ir.program import Program
from planner.rewrite.optimize.cancel_gather_slice import cancel_gather_slice
from planner.rewrite.optimize.cse import eliminate_common_collectives
from planner.rewrite.optimize.dce import eliminate_dead_code
from planner.rewrite.optimize.decompose_all_reduce import decompose_all_reduce
from planner.rewrite.optimize.fold_collectives import fold_collectives
from planner.rewrite.optimize.form_reduce_scatter import form_reduce_scatter
from planner.rewrite.optimize.reassociate_all_reduce import reassociate_all_reduce
from planner.rewrite.optimize.reassociate_reduce_scatter import reassociate_reduce_scatter
from planner.rewrite.optimize.rewriter import Price, zero_price
from planner.rewrite.optimize.shrink_constants import shrink_constants
from planner.rewrite.optimize.sink_all_gather import sink_all_gather

__all__ = [
    "PASSES",
    "Price",
    "cancel_gather_slice",
    "decompose_all_reduce",
    "eliminate_common_collectives",
    "eliminate_dead_code",
    "fold_collectives",
    "form_reduce_scatter",
    "optimize",
    "reassociate_all_reduce",
    "reassociate_reduce_scatter",
    "shrink_constants",
    "sink_all_gather",
    "zero_price",
]

Pass = Callable[[Program, Price], Program]
PASSES: tuple[Pass, ...] = (
    eliminate_dead_code,
    eliminate_common_collectives,
    cancel_gather_slice,
    fold_collectives,
    form_reduce_scatter,
    reassociate_all_reduce,
    reassociate_reduce_scatter,
    sink_all_gather,
    decompose_all_reduce,
    shrink_constants,
)


def optimize(program: Program, price: Price, limit: int | None = None) -> Program:
    """Return the program at the fixed point of all passes.

    `limit` is in bytes per device: the result of a pass is discarded where it needs more than that and more than the
    program before it.
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
    return int(Accounting(program).live.max())
