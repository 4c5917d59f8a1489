"""Recover the choice that a program was written from, the inverse of `planner.rewrite.materialize`, and encode choices.

The copies of a value form a tree of moves that starts at its op's result. The readers of a shared value each move it
from one shared copy, which is therefore the last common ancestor of what they read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.choose.formulate import Choice, Formulation
from planner.choose.liveness import SharedLifetime
from planner.choose.variables import Role, Variable
from planner.errors import InvalidRequest
from planner.ir.execution_order import find_readers
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Sharding


def recover_choice(program: Program) -> Choice:
    """Recover the choice that a program was written from."""
    runs = {done.op.id: done for done in program.instructions if isinstance(done, OpCall)}
    before = {done.result: done.operand for done in program.instructions if isinstance(done, Reshard)}
    shared = {}
    for value, readers in find_readers(program.graph).items():
        if len(readers) > 1:
            ops = program.graph.ops
            read = [
                program.outputs[r.operand] if r.op is None else runs[ops[r.op].id].operands[r.operand] for r in readers
            ]
            shared[value] = program.values[_common_ancestor([_chain_to_source(name, before) for name in read])].sharding
    outputs = tuple(program.values[name].sharding for name in program.outputs)
    return Choice(dict(program.arguments), {op: run.option for op, run in runs.items()}, shared, outputs)


def _chain_to_source(name: str, before: Mapping[str, str]) -> list[str]:
    """Return the names on the path from an op's result to a copy of it."""
    path = [name]
    while path[-1] in before:
        path.append(before[path[-1]])
    return path[::-1]


def _common_ancestor(paths: list[list[str]]) -> str:
    """Return the last name that all paths have in common."""
    common: list[str] = [names[0] for names in zip(*paths, strict=False) if len(set(names)) == 1]
    return common[-1]


def encode_choice(question: Formulation, choice: Choice) -> list[int]:
    """Encode a choice as an assignment. Raises InvalidRequest for a choice that the question does not offer."""
    return _ChoiceEncoder(question, choice).strategies()


def recompute_everything(question: Formulation, choice: Choice) -> Choice:
    """Return the choice with every recomputable op recomputed, under the same option."""
    first = question.with_clones.clone_of
    options = choice.options | {copy: choice.options[op] for copy, op in first.items()}
    shared = choice.shared | {copy: choice.shared[value] for copy, value in first.items() if value in choice.shared}
    return replace(choice, options=options, shared=shared)


def unshare_inputs(choice: Choice) -> Choice:
    """Return the choice in which readers of a graph input reshard it themselves, without a shared copy."""
    stored = {value: choice.inputs[value] for value in choice.shared if value in choice.inputs}
    return replace(choice, shared=choice.shared | stored)


@dataclass(frozen=True)
class _ChoiceEncoder:
    question: Formulation
    choice: Choice

    def strategies(self) -> list[int]:
        """Return the strategies. A shared copy that the choice does not mention keeps the sharding of its value."""
        return [self._strategy(variable) for variable in self.question.variables]

    def _strategy(self, variable: Variable) -> int:
        choice = self.choice
        match variable.role:
            case Role.OP:
                wanted = choice.options.get(variable.name)
                if wanted in variable.options:
                    return variable.options.index(wanted)
                # A clone has one more strategy: not to run.
                is_idle = np.arange(len(variable.costs)) >= len(variable.options)
                return _first_strategy(variable, is_idle & (wanted is None))
            case Role.SHARED_COPY:
                life = self._life(variable)
                alive = np.array([each == life for each in variable.lifetimes])[variable.lifetime_of]
                if life is None:
                    return _first_strategy(variable, alive)
                shared = alive & _strategies_with(variable, self._shared(variable.name, life))
                return _first_strategy(
                    variable,
                    shared
                    if shared.any()
                    else alive & _strategies_with(variable, self._producer_sharding(variable.name)),
                )
            case Role.INPUT:
                return _first_strategy(variable, _strategies_with(variable, choice.inputs[variable.name]))
            case _:
                return _first_strategy(variable, _strategies_with(variable, choice.outputs[int(variable.name)]))

    def _life(self, hub: Variable) -> SharedLifetime | None:
        doubled = self.question.with_clones
        last = self._last(hub.name)
        copy = doubled.clones.get(hub.name)
        if copy is not None:
            kept = copy not in self.choice.options and self._last(copy) is not None
            return next(life for life in hub.lifetimes if life is not None and life.is_kept == kept)
        kept = hub.name in doubled.clone_of and hub.name not in self.choice.options
        return None if last is None else SharedLifetime(last, kept)

    def _last(self, value: str) -> int | None:
        """Return the position of the last op that runs and reads a value, or None where none does."""
        time, ops = self.question.liveness, self.question.graph.ops
        places = [group.position for group in time.read_groups[value]]
        ran = [at for at in places if at not in time.optional or ops[at].id in self.choice.options]
        return max(ran, default=None)

    def _shared(self, value: str, life: SharedLifetime) -> Sharding | None:
        if self.question.liveness.is_in_place(value, life):
            return self._producer_sharding(value)
        first = self.question.with_clones.clone_of.get(value, value) if life.is_kept else value
        return self.choice.shared.get(first) or (self._producer_sharding(first) if first != value else None)

    def _producer_sharding(self, value: str) -> Sharding:
        """Return the sharding in which a value is computed or comes in."""
        producer = self.question.producer(value)
        if producer is None:
            return self.choice.inputs[value]
        op, result = producer
        return op.rule.result_sharding(result, self.choice.options[op.id])


def _strategies_with(variable: Variable, wanted: Sharding | None) -> NDArray[np.bool_]:
    return (*variable.results, *variable.operands)[0].is_in(wanted)


def _first_strategy(variable: Variable, fits: NDArray[np.bool_]) -> int:
    if not fits.any():
        what = f"{variable.role} {variable.name!r}"
        raise InvalidRequest("the plan's choice is not among the options", where=what, wanted="a plan of this version")
    return int(fits.argmax())
