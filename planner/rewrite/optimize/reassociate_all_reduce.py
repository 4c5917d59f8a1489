"""One all_reduce after an op in place of those before it (RFC, all_reduce reassociate).

    add(all_reduce x, all_reduce y) -> all_reduce add(x, y)        subtract alike, where the kind is sum
    maximum of max, minimum of min, multiply of product; and any op in the operands in which it is linear

The op's rule says where this holds: a linear loop passes the terms of a reduction on. Products are exact for integers,
which wrap around alike in every order, and for floats as exact as sums: up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.ir.collectives import Collective, Kind
from planner.ir.indexing import LoopKind
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.rewrite.optimize.rewriter import Price, ProgramRewriter, rewrite_once, used_axes, widen_option, zero_price


def reassociate_all_reduce(program: Program, price: Price = zero_price) -> Program:
    """Move all_reduces over the same axes, each read only by the op, behind it. The op's result may be read often."""
    return rewrite_once(program, price, try_linear_loops(_reassociate))


def try_linear_loops(
    passed: Callable[[ProgramRewriter, OpCall, int], bool],
) -> Callable[[ProgramRewriter, Instruction], bool]:
    """Return a rewrite that tries every linear loop of an op until `passed` rewrites one."""

    def rewrite(draft: ProgramRewriter, done: Instruction) -> bool:
        if not isinstance(done, OpCall):
            return False
        linear = [number for number, loop in enumerate(done.op.rule.loops) if loop.kind is LoopKind.LINEAR]
        return any(passed(draft, done, number) for number in linear)

    return rewrite


def _reassociate(draft: ProgramRewriter, run: OpCall, number: int) -> bool:
    loop = run.op.rule.loops[number]
    reduces = find_reduced_group(draft, run, loop.operands, kind=Kind.ALL_REDUCE)
    axes = tuple(sorted(reduces[0].collective.axes)) if reduces else ()
    if not axes or set(axes) & used_axes(run.option) or any(set(m.collective.axes) != set(axes) for m in reduces):
        return False
    if any(draft.values[move.operand].sharding.reduction is not loop.reduction for move in reduces):
        return False
    option = widen_option(run.option, number, axes)
    if not run.op.rule.is_allowed(option, draft.program.mesh):
        return False
    partial = OpCall(run.op, option, undo_moves(run, loop.operands, reduces), run.results)
    moves = [Reshard(Collective(Kind.ALL_REDUCE, axes), name, draft.fresh_name(name)) for name in run.results]
    return draft.replace(run, [partial, *moves], {move.operand: move.result for move in moves})


def find_reduced_group(draft: ProgramRewriter, run: OpCall, group: tuple[int, ...], *, kind: Kind) -> list[Reshard]:
    """Return the moves of a kind that made the operands of a group.

    Return none where something else reads one of them.
    """
    moves = [draft.find_move(run.operands[operand], kind) for operand in group]
    others = {name for i, name in enumerate(run.operands) if i not in group}
    movable = [m for m in moves if m is not None and not draft.reads[m.result] and m.result not in others]
    return movable if len(movable) == len(group) else []


def undo_moves(run: OpCall, group: tuple[int, ...], moves: list[Reshard]) -> tuple[str, ...]:
    """Return the operands of a run, those of the group as they were before the moves."""
    before = dict(zip(group, (move.operand for move in moves), strict=True))
    return tuple(before.get(i, name) for i, name in enumerate(run.operands))
