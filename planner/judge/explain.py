"""Why a decision is as it is: what every other option would cost where its neighbours stay as they are.

The terms of an option are its own time and the reshards between it and its neighbours: the variables that make what
it reads and read what it makes (an op, a graph input or output, or the sharding a value is shared in). Over a plan
own times and reshards, each counted once, add up to the step exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

import solvers
from planner.choose.formulate import Formulation
from planner.choose.port import Port
from planner.choose.variables import Role, Variable
from planner.errors import InvalidRequest
from planner.model.graph import Op
from planner.model.sharding import Sharding
from planner.model.steps import Execute, Read, Share, steps
from solvers import Edge


@dataclass(frozen=True, slots=True)
class Reshard:
    """A value on its way in or out: who makes or reads it, its sharding there and the one the option has, in ps (None:
    there is no way)."""

    value: str
    direction: Literal["in", "out"]
    neighbour: str
    there: Sharding
    here: Sharding
    time_ps: int | None


@dataclass(frozen=True, slots=True)
class Considered:
    """An option (`split`: its loops, or the value's sharding) and its terms, the other decisions being the plan's.

    `memory_bytes`: the plan's peak with it.
    """

    strategy: int
    split: str
    compute_ps: int
    reshards: tuple[Reshard, ...]
    memory_bytes: int
    fits: bool

    @property
    def time_ps(self) -> int | None:
        """None where a neighbour has to change for it."""
        moves = [each.time_ps for each in self.reshards]
        return None if None in moves else self.compute_ps + sum(filter(None, moves))


@dataclass(frozen=True)
class Decision:
    """One variable of a question in the light of a choice of all."""

    question: Formulation
    strategies: Sequence[int]
    node: int

    @property
    def variable(self) -> Variable:
        return self.question.variables[self.node]

    @property
    def chosen(self) -> int:
        return self.strategies[self.node]

    @cached_property
    def considered(self) -> tuple[Considered, ...]:
        """Every option, in the order of its time, the chosen one first among equals."""
        found = [self._considered(strategy) for strategy in range(len(self.variable.costs))]
        return tuple(sorted(found, key=self._rank))

    def _rank(self, option: Considered) -> tuple[bool, int, bool, int]:
        time = option.time_ps
        return time is None, time or 0, option.strategy != self.chosen, option.strategy

    def _considered(self, strategy: int) -> Considered:
        changed = list(self.strategies)
        changed[self.node] = strategy
        worth = solvers.evaluate(self.question.problem, changed)
        reshards = tuple(self._reshard(edge, step, strategy) for edge, step in self._ends)
        compute = int(self.variable.costs[strategy])
        return Considered(strategy, self._split(strategy), compute, reshards, worth.peak, worth.feasible)

    def _split(self, strategy: int) -> str:
        variable, mesh = self.variable, self.question.model.mesh
        if variable.role is not Role.OP:
            return _state((*variable.results, *variable.operands)[0], strategy).named(mesh)
        pairs = zip(self._ops[variable.name].rule.loops, variable.options[strategy], strict=True)
        split = [f"{loop.name}:{'/'.join(mesh.names[axis] for axis in axes)}" for loop, axes in pairs if axes]
        return ", ".join(split) or "whole"

    @cached_property
    def _ends(self) -> list[tuple[Edge, Share | Read]]:
        """The edges of the variable, each with the step that it stands for."""
        moves = (step for step in steps(self.question.graph) if not isinstance(step, Execute))
        pairs = zip(self.question.problem.edges, moves, strict=True)
        return [(edge, step) for edge, step in pairs if self.node in (edge.source, edge.target)]

    def _reshard(self, edge: Edge, step: Share | Read, strategy: int) -> Reshard:
        source, target = (strategy if end == self.node else self.strategies[end] for end in (edge.source, edge.target))
        left, read = _state(self._maker(edge, step.value), source), _state(self._reader(edge, step), target)
        time = int(edge.matrix[edge.source_class[source], edge.target_class[target]])
        inward = edge.target == self.node
        other = self.question.variables[edge.source if inward else edge.target]
        there, here = (left, read) if inward else (read, left)
        name = f"{other.role} {other.name}"
        known = time if time < solvers.IMPOSSIBLE else None
        return Reshard(step.value, "in" if inward else "out", name, there, here, known)

    def _maker(self, edge: Edge, value: str) -> Port:
        maker = self.question.variables[edge.source]
        if maker.role is not Role.OP:
            return maker.results[0]
        return maker.results[self._ops[maker.name].values.index(value)]

    def _reader(self, edge: Edge, step: Share | Read) -> Port:
        reader = self.question.variables[edge.target]
        if isinstance(step, Read) and reader.role is Role.OP:
            return reader.operands[step.reader.operand]
        return (*reader.operands, *reader.results)[0]

    @cached_property
    def _ops(self) -> dict[str, Op]:
        return {op.id: op for op in self.question.graph.ops}


def _state(port: Port, strategy: int) -> Sharding:
    found: Sharding = port.states[port.classes[strategy]]
    return found


def decision(question: Formulation, strategies: Sequence[int], name: str) -> Decision:
    """The decision on an op, or on the layout of a graph input. Raises InvalidRequest for a name that is neither."""
    for role in (Role.OP, Role.INPUT):
        if (role, name) in question.index:
            return Decision(question, strategies, question.index[role, name])
    names = [variable.name for variable in question.variables if variable.role in (Role.OP, Role.INPUT)]
    near = get_close_matches(name, names, 3, 0.3) or names[:3]
    raise InvalidRequest("no such op or input", got=name, wanted=f"one such as {', '.join(near)}")
