"""The choice behind a program, read off the program: the way back from `planner.rewrite.materialize`.

A value's copies are a tree of moves that begins at what its op made. Every reader of a shared value moves it for itself
from the one sharding they share, so that is where the ways of its readers part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.choose.formulate import Choice, Formulation
from planner.choose.variables import Role, Variable
from planner.errors import InvalidRequest
from planner.model.program import Move, Program, Run
from planner.model.steps import readers


def choice_of(program: Program) -> Choice:
    """The choice that a program was written from."""
    runs = {done.op.id: done for done in program.instructions if isinstance(done, Run)}
    before = {done.result: done.operand for done in program.instructions if isinstance(done, Move)}
    shared = {}
    for value, who in readers(program.graph).items():
        if len(who) > 1:
            ops = program.graph.ops
            read = [program.outputs[r.operand] if r.op is None else runs[ops[r.op].id].operands[r.operand] for r in who]
            shared[value] = program.values[_parting([_way(name, before) for name in read])].sharding
    outputs = tuple(program.values[name].sharding for name in program.outputs)
    return Choice(dict(program.arguments), {op: run.option for op, run in runs.items()}, shared, outputs)


def _way(name: str, before: Mapping[str, str]) -> list[str]:
    """From what the op made to a copy."""
    way = [name]
    while way[-1] in before:
        way.append(before[way[-1]])
    return way[::-1]


def _parting(ways: list[list[str]]) -> str:
    """The last name that all ways have in common."""
    common: list[str] = [names[0] for names in zip(*ways, strict=False) if len(set(names)) == 1]
    return common[-1]


def strategies_of(question: Formulation, choice: Choice) -> list[int]:
    """The solver's choice of the planner's. Raises InvalidRequest for one that the question does not offer."""
    return [_strategy(variable, choice) for variable in question.variables]


def _strategy(variable: Variable, choice: Choice) -> int:
    if variable.role is Role.OP:
        fits = np.array([option == choice.options[variable.name] for option in variable.options])
    else:
        wanted = {Role.INPUT: choice.inputs, Role.HUB: choice.shared}.get(variable.role)
        state = choice.outputs[int(variable.name)] if wanted is None else wanted[variable.name]
        port = (*variable.results, *variable.operands)[0]
        fits = np.array([each == state for each in port.states])[port.classes]
    if not fits.any():
        what = f"{variable.role} {variable.name!r}"
        raise InvalidRequest("the plan chose what is not offered", where=what, wanted="a plan of this version")
    return int(fits.argmax())
