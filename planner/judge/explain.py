"""Explain a decision: what each other option would cost while its neighbours stay as they are.

The cost of an option is its own time and that of the reshards between it and its neighbours: the variables that produce
its operands and read its results (ops, graph inputs and outputs, shared copies of values). Over a plan, own times and
reshards, each counted once, add up to the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

import solvers
from planner.choose.formulate import Formulation
from planner.choose.operand_layouts import OperandLayouts
from planner.choose.variables import Role, Variable
from planner.errors import InvalidRequest
from planner.ir.execution_order import Read, Share, order_steps
from planner.ir.graph import Op
from planner.ir.sharding import Sharding
from solvers import Edge


@dataclass(frozen=True, slots=True)
class ReshardCost:
    """The reshard of a value between an option and a neighbour.

    direction  "in" for an operand, "out" for a result
    there      the sharding at the neighbour, and `here` at the option
    time_ps    None where no reshard leads from one to the other
    """

    value: str
    direction: Literal["in", "out"]
    neighbour: str
    there: Sharding
    here: Sharding
    time_ps: int | None


@dataclass(frozen=True, slots=True)
class OptionCost:
    """An option and its costs, while the other decisions are the plan's.

    split         the loops that an op splits, or the sharding of a value
    memory_bytes  peak of the plan with this option
    """

    strategy: int
    split: str
    compute_ps: int
    reshards: tuple[ReshardCost, ...]
    memory_bytes: int
    fits: bool

    @property
    def time_ps(self) -> int | None:
        """Time of the option with its reshards, or None where a neighbour would have to change."""
        moves = [each.time_ps for each in self.reshards]
        return None if None in moves else self.compute_ps + sum(filter(None, moves))


@dataclass(frozen=True)
class Decision:
    """One variable of a question, within an assignment of all variables."""

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
    def option_costs(self) -> tuple[OptionCost, ...]:
        """All options in the order of time, the chosen one first among equals."""
        options = [self._price_option(strategy) for strategy in range(len(self.variable.costs))]
        return tuple(sorted(options, key=self._rank))

    def _rank(self, option: OptionCost) -> tuple[bool, int, bool, int]:
        time = option.time_ps
        return time is None, time or 0, option.strategy != self.chosen, option.strategy

    def _price_option(self, strategy: int) -> OptionCost:
        changed = list(self.strategies)
        changed[self.node] = strategy
        evaluation = solvers.evaluate(self.question.problem, changed)
        reshards = tuple(self._price_reshard(edge, step, strategy) for edge, step in self._edge_steps)
        compute = int(self.variable.costs[strategy])
        return OptionCost(
            strategy, self._describe_split(strategy), compute, reshards, evaluation.peak, evaluation.feasible
        )

    def _describe_split(self, strategy: int) -> str:
        variable, mesh = self.variable, self.question.model.mesh
        if variable.role is not Role.OP:
            return _sharding_of((*variable.results, *variable.operands)[0], strategy).format_axes(mesh)
        pairs = zip(self._ops[variable.name].rule.loops, variable.options[strategy], strict=True)
        split = [f"{loop.name}:{'/'.join(mesh.names[axis] for axis in axes)}" for loop, axes in pairs if axes]
        return ", ".join(split) or "whole"

    @cached_property
    def _edge_steps(self) -> list[tuple[Edge, Share | Read]]:
        """The edges of the variable, each with the step of the execution order that it prices."""
        moves = (step for step in order_steps(self.question.graph) if isinstance(step, Share | Read))
        pairs = zip(self.question.problem.edges, moves, strict=True)
        return [(edge, step) for edge, step in pairs if self.node in (edge.source, edge.target)]

    def _price_reshard(self, edge: Edge, step: Share | Read, strategy: int) -> ReshardCost:
        source, target = (strategy if end == self.node else self.strategies[end] for end in (edge.source, edge.target))
        left, read = (
            _sharding_of(self._producer_layout(edge, step.value), source),
            _sharding_of(self._reader_layout(edge, step), target),
        )
        time = int(edge.cost(edge.source_class[source], edge.target_class[target]))
        inward = edge.target == self.node
        other = self.question.variables[edge.source if inward else edge.target]
        there, here = (left, read) if inward else (read, left)
        name = f"{other.role} {other.name}"
        known = time if time < solvers.IMPOSSIBLE else None
        return ReshardCost(step.value, "in" if inward else "out", name, there, here, known)

    def _producer_layout(self, edge: Edge, value: str) -> OperandLayouts:
        maker = self.question.variables[edge.source]
        if maker.role is not Role.OP:
            return maker.results[0]
        return maker.results[self._ops[maker.name].values.index(value)]

    def _reader_layout(self, edge: Edge, step: Share | Read) -> OperandLayouts:
        reader = self.question.variables[edge.target]
        if isinstance(step, Read) and reader.role is Role.OP:
            return reader.operands[step.reader.operand]
        return (*reader.operands, *reader.results)[0]

    @cached_property
    def _ops(self) -> dict[str, Op]:
        return {op.id: op for op in self.question.graph.ops}


def _sharding_of(port: OperandLayouts, strategy: int) -> Sharding:
    found: Sharding = port.states[port.classes[strategy]]
    return found


def explain_decision(question: Formulation, strategies: Sequence[int], name: str) -> Decision:
    """Return the decision on an op, or on the layout of a graph input. Raises InvalidRequest for another name."""
    for role in (Role.OP, Role.INPUT):
        if (role, name) in question.index:
            return Decision(question, strategies, question.index[role, name])
    names = [variable.name for variable in question.variables if variable.role in (Role.OP, Role.INPUT)]
    near = get_close_matches(name, names, 3, 0.3) or names[:3]
    raise InvalidRequest("no such op or input", got=name, wanted=f"one such as {', '.join(near)}")
