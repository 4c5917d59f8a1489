"""The choice behind a program, read off the program: the way back from `planner.rewrite.materialize`.

A value's copies are a tree of moves that begins at what its op made. Every reader of a shared value moves it for itself
from the one sharding they share, so that is where the ways of its readers part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.choose.formulate import Choice, Formulation
from planner.choose.timeline import Life
from planner.choose.variables import Role, Variable
from planner.errors import InvalidRequest
from planner.model.program import Move, Program, Run
from planner.model.sharding import Sharding
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
    return _Encoding(question, choice).strategies()


def repeating(question: Formulation, choice: Choice) -> Choice:
    """The choice with all that may be done again done again, as it was done first."""
    first = question.doubled.first
    options = choice.options | {copy: choice.options[op] for copy, op in first.items()}
    shared = choice.shared | {copy: choice.shared[value] for copy, value in first.items() if value in choice.shared}
    return replace(choice, options=options, shared=shared)


def as_stored(choice: Choice) -> Choice:
    """The choice in which every reader of a graph input fetches it for itself, so that no copy is held between."""
    stored = {value: choice.inputs[value] for value in choice.shared if value in choice.inputs}
    return replace(choice, shared=choice.shared | stored)


@dataclass(frozen=True)
class _Encoding:
    question: Formulation
    choice: Choice

    def strategies(self) -> list[int]:
        """A hub that the choice does not speak of stays as its value is made."""
        return [self._strategy(variable) for variable in self.question.variables]

    def _strategy(self, variable: Variable) -> int:
        choice = self.choice
        match variable.role:
            case Role.OP:
                wanted = choice.options.get(variable.name)
                listed = [*variable.options, *[None] * (len(variable.costs) - len(variable.options))]
                return _first(variable, np.array([option == wanted for option in listed]))
            case Role.HUB:
                life = self._life(variable)
                alive = np.array([each == life for each in variable.lives])[variable.life]
                if life is None:
                    return _first(variable, alive)
                shared = alive & _having(variable, self._shared(variable.name, life))
                return _first(
                    variable, shared if shared.any() else alive & _having(variable, self._made(variable.name))
                )
            case Role.INPUT:
                return _first(variable, _having(variable, choice.inputs[variable.name]))
            case _:
                return _first(variable, _having(variable, choice.outputs[int(variable.name)]))

    def _life(self, hub: Variable) -> Life | None:
        doubled = self.question.doubled
        last = self._last(hub.name)
        copy = doubled.again.get(hub.name)
        if copy is not None:
            kept = copy not in self.choice.options and self._last(copy) is not None
            return next(life for life in hub.lives if life is not None and life.linked == kept)
        kept = hub.name in doubled.first and hub.name not in self.choice.options
        return None if last is None else Life(last, kept)

    def _last(self, value: str) -> int | None:
        """The position of the last op that runs and reads a value."""
        time, ops = self.question.time, self.question.graph.ops
        places = [group.position for group in time.groups[value]]
        ran = [at for at in places if at not in time.optional or ops[at].id in self.choice.options]
        return max(ran, default=None)

    def _shared(self, value: str, life: Life) -> Sharding | None:
        if self.question.time.stays(value, life):
            return self._made(value)
        first = self.question.doubled.first.get(value, value) if life.linked else value
        return self.choice.shared.get(first) or (self._made(first) if first != value else None)

    def _made(self, value: str) -> Sharding:
        """The sharding in which a value is made."""
        found = self.question.maker(value)
        if found is None:
            return self.choice.inputs[value]
        op, result = found
        return op.rule.result_sharding(result, self.choice.options[op.id])


def _having(variable: Variable, wanted: Sharding | None) -> NDArray[np.bool_]:
    port = (*variable.results, *variable.operands)[0]
    return np.array([state == wanted for state in port.states] + [False])[port.classes]


def _first(variable: Variable, fits: NDArray[np.bool_]) -> int:
    if not fits.any():
        what = f"{variable.role} {variable.name!r}"
        raise InvalidRequest("the plan chose what is not offered", where=what, wanted="a plan of this version")
    return int(fits.argmax())
