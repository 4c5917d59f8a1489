"""An all_gather after an op for those before it (RFC, SLD: all_gather move down).

    op(all_gather x) -> all_gather op(x)

The gathered dim must be a parallel loop of the op, and every other operand be had split along it without more
being sent. No device then repeats what others compute.
"""

from __future__ import annotations

from planner.model.collectives import Kind
from planner.model.program import Instruction, Program, Run
from planner.rewrite.optimize.draft import Draft, Price, free, sweep
from planner.rewrite.optimize.split_run import parallel_loop, split_run


def move_all_gather_down(program: Program, price: Price = free) -> Program:
    """All_gathers read by one op alone move behind it, and on behind the ops after it."""
    return sweep(program, price, _move_down)


def _move_down(draft: Draft, done: Instruction) -> bool:
    if not isinstance(done, Run):
        return False
    return any(_moved(draft, done, operand) for operand in range(len(done.operands)))


def _moved(draft: Draft, run: Run, operand: int) -> bool:
    gather = draft.move(run.operands[operand], Kind.ALL_GATHER)
    if gather is None or gather.collective.dim is None or draft.reads[gather.result]:
        return False
    loop = parallel_loop(run, operand, gather.collective.dim)
    offer = None if loop is None else split_run(draft, run, loop, gather.collective.axes)
    return offer is not None and draft.replace(run, offer.added, offer.names)
