"""A program of collectives on local tensors as passes read it, and the sweep that applies a rewrite.

A rewrite takes one instruction and returns others that define the same results, or other values equal to them on every
device. So rewrites of one sweep cannot contradict each other, and what they leave unread is dropped at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

from planner.ir.sharding import Axes
from planner.rewrite.optimize_spmd.agreement import find_agreed_axes
from planner.spmd import LocalType, SpmdCall, SpmdInstruction, SpmdProgram
from planner.spmd.folding import unread_instructions
from planner.spmd.op_def import DEFAULTS


class Replacement(NamedTuple):
    """The instructions in place of one, and what readers of its results are to read."""

    instructions: tuple[SpmdInstruction, ...]
    renames: Mapping[str, str] = {}


@dataclass(frozen=True)
class ProgramView:
    """A program with the makers and readers of its values."""

    program: SpmdProgram
    numbers: count[int] = field(default_factory=lambda: count(1))

    @cached_property
    def makers(self) -> dict[str, SpmdInstruction]:
        return {name: done for done in self.program.instructions for name in done.results}

    @cached_property
    def reads(self) -> Counter[str]:
        read = Counter(name for done in self.program.instructions for name in done.operands)
        read.update(self.program.outputs)
        return read

    @cached_property
    def agreed_axes(self) -> dict[str, frozenset[int]]:
        return find_agreed_axes(self.program)

    @cached_property
    def first_calls(self) -> dict[str, SpmdCall]:
        """The first call with each text, results aside."""
        calls = [done for done in self.program.instructions if isinstance(done, SpmdCall)]
        return {_call_text(self.program, call): call for call in reversed(calls)}

    def find_first_equal(self, call: SpmdCall) -> SpmdCall:
        """Return the first call that does the same on the same operands, which may be the call itself."""
        return self.first_calls[_call_text(self.program, call)]

    def type(self, name: str) -> LocalType:
        return self.program.values[name].type

    def find_call(self, name: str, op: str, *, like: SpmdInstruction) -> SpmdCall | None:
        """Return the call of `op` that made a value on the mesh of `like`, None for any other value."""
        made = self.makers.get(name)
        if not isinstance(made, SpmdCall) or made.op != op:
            return None
        return made if self.program.mesh_name(made) == self.program.mesh_name(like) else None

    def fresh_name(self, name: str) -> str:
        """Return a name that no value has yet."""
        return next(new for number in self.numbers if (new := f"{name}.part{number}") not in self.program.values)


def _call_text(program: SpmdProgram, call: SpmdCall) -> str:
    attrs = sorted((key, str(value)) for key, value in call.attrs.items())
    return f"{program.mesh_name(call)} {call.op} {call.operands} {attrs} {[str(kind) for kind in call.types]}"


def mesh_axes(call: SpmdCall) -> Axes:
    axes: Any = call.attrs.get("mesh_axes", ())
    return tuple(axes)


def attribute(call: SpmdCall, key: str) -> Any:
    """Return an attribute of a call, or its default."""
    return call.attrs.get(key, DEFAULTS.get(key))


def has_default_blocks(call: SpmdCall, size: int | None) -> bool:
    """Return whether a call cuts a dim of `size` (None: unknown) as the type of its result says, all blocks alike."""
    return attribute(call, "block") is None and size is not None and None not in call.types[0].shape


def sweep(program: SpmdProgram, rewrite: Callable[[ProgramView, SpmdInstruction], Replacement | None]) -> SpmdProgram:
    """Return the program after offering every instruction to `rewrite`, which returns None to keep it.

    Return the same object where nothing is rewritten.
    """
    view = ProgramView(program)
    instructions, renames = list[SpmdInstruction](), dict[str, str]()
    changed = False
    for done in program.instructions:
        replacement = rewrite(view, done)
        changed |= replacement is not None
        instructions += (done,) if replacement is None else replacement.instructions
        renames |= {} if replacement is None else replacement.renames
    return drop_unread(_rename(program, instructions, renames)) if changed else program


def _rename(program: SpmdProgram, instructions: list[SpmdInstruction], renames: Mapping[str, str]) -> SpmdProgram:
    def current(name: str) -> str:
        while name in renames:
            name = renames[name]
        return name

    renamed = tuple(replace(done, operands=tuple(map(current, done.operands))) for done in instructions)
    return replace(program, instructions=renamed, outputs=tuple(map(current, program.outputs)))


def drop_unread(program: SpmdProgram) -> SpmdProgram:
    """Return the program without pure instructions that no output depends on."""
    dropped = set(unread_instructions(program))
    if not dropped:
        return program
    kept = (done for place, done in enumerate(program.instructions) if place not in dropped)
    return replace(program, instructions=tuple(kept))
