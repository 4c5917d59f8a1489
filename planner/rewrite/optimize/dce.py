"""Elimination of dead collectives and ops: those whose results nobody reads."""

from __future__ import annotations

from dataclasses import replace

from planner.ir.program import Instruction, Program
from planner.rewrite.optimize.rewriter import Price, zero_price


def eliminate_dead_code(program: Program, price: Price = zero_price) -> Program:
    """Keep only the instructions that outputs depend on."""
    read = set(program.outputs)
    kept: list[Instruction] = []
    for done in reversed(program.instructions):
        if read & set(done.results):
            kept.append(done)
            read.update(done.operands)
    return program if len(kept) == len(program.instructions) else replace(program, instructions=tuple(kept[::-1]))
