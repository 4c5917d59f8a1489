"""Passes over programs of collectives on local tensors, such as MLIR text holds, by the names of `rewrite.optimize`.

Local tensors have no shardings, so these passes look at instructions alone. Each keeps what every device holds of the
outputs. All but `decompose_all_reduce` leave no more to send, and run in turn until none finds anything; that one only
pays where the op is worth splitting, so it runs where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from planner.rewrite.optimize_spmd.fold_calls import (
    cancel_gather_slice,
    eliminate_common_collectives,
    fold_collectives,
    form_reduce_scatter,
)
from planner.rewrite.optimize_spmd.move_calls import (
    decompose_all_reduce,
    reassociate_all_reduce,
    reassociate_reduce_scatter,
    shrink_constants,
    sink_all_gather,
)
from planner.rewrite.optimize_spmd.program_view import drop_unread, sweep
from planner.spmd import SpmdProgram

__all__ = ["SPMD_PASSES", "optimize_spmd"]

REWRITES = (
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
SPMD_PASSES: Mapping[str, Callable[[SpmdProgram], SpmdProgram]] = MappingProxyType(
    {
        "eliminate_dead_code": drop_unread,
        **{rewrite.__name__: partial(sweep, rewrite=rewrite) for rewrite in REWRITES},
    }
)
DEFAULT_PASSES = tuple(name for name in SPMD_PASSES if name != decompose_all_reduce.__name__)


def optimize_spmd(program: SpmdProgram, names: Sequence[str] = DEFAULT_PASSES) -> SpmdProgram:
    """Return the program at the fixed point of the named passes, run in the given order."""
    while True:
        before = program
        for name in names:
            program = SPMD_PASSES[name](program)
        if program is before:
            return program
