"""The variables of the choice: a layout per graph input and output, an option per op, a hub per shared value.

A hub is the one sharding into which a value with several readers is brought before they read it, so that a
reshard they share is paid once. It may be any sharding in which the value is made or read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel
from planner.choose.options import candidates, layouts
from planner.errors import InvalidSharding
from planner.model.graph import OUTPUTS, Annotation, Graph, Op, TensorType
from planner.model.indexing import Option
from planner.model.sharding import Sharding
from planner.model.steps import Execute, Read, Share, readers, steps


class Role(StrEnum):
    """What a variable decides."""

    INPUT = "input"
    OP = "op"
    HUB = "hub"
    OUTPUT = "output"


class Use(NamedTuple):
    """A value as it is defined (no user), or read by a user as one of its operands."""

    value: str
    user: str | None = None
    operand: int | None = None


@dataclass(frozen=True, eq=False)
class Port:
    """One value as a variable's strategies make or read it: the distinct shardings, and which each strategy has."""

    states: tuple[Sharding, ...]
    classes: NDArray[np.int32]

    @classmethod
    def of(cls, by_strategy: Iterable[Sharding]) -> Port:
        listed = list(by_strategy)
        states = {state: i for i, state in enumerate(dict.fromkeys(listed))}
        return cls(tuple(states), np.array([states[state] for state in listed], np.int32))

    def keep(self, chosen: NDArray[np.intp]) -> Port:
        return Port.of(self.states[self.classes[strategy]] for strategy in chosen)


@dataclass(frozen=True, eq=False)
class Variable:
    """One decision: `costs[s]` in ps, the value made per result and read per operand, the option if an op."""

    role: Role
    name: str
    costs: NDArray[np.int64]
    results: tuple[Port, ...] = ()
    operands: tuple[Port, ...] = ()
    options: tuple[Option, ...] = ()

    def keep(self, chosen: NDArray[np.intp]) -> Variable:
        """The same decision among some of its strategies."""
        return Variable(
            self.role,
            self.name,
            self.costs[chosen],
            tuple(port.keep(chosen) for port in self.results),
            tuple(port.keep(chosen) for port in self.operands),
            tuple(self.options[s] for s in chosen) if self.options else (),
        )


def variables(graph: Graph, model: CostModel) -> list[Variable]:
    """Every variable in the order of the program's steps. Raises InvalidSharding for a pin that nothing meets."""
    return _Listing(graph, model).all()


@dataclass
class _Listing:
    graph: Graph
    model: CostModel
    listed: dict[tuple[Role, str], Variable] = field(default_factory=dict)
    by_signature: dict[object, Variable] = field(default_factory=dict)
    layouts: dict[TensorType, Port] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pins: dict[str, list[Annotation]] = defaultdict(list)
        for annotation in self.graph.annotations:
            if annotation.required:
                self.pins[annotation.value].append(annotation)

    def all(self) -> list[Variable]:
        ops = [self._op(op) for op in self.graph.ops]
        makers = {value: port for op, v in zip(self.graph.ops, ops, strict=True) for value, port in _made(op, v)}
        hubs = self._hubs(ops, makers)
        waiting = dict.fromkeys(i.id for i in self.graph.inputs)
        for step in steps(self.graph):
            if not isinstance(step, Execute) and step.value in waiting:
                waiting.pop(step.value)
                self._add(self._layout(Role.INPUT, step.value, step.value))
            match step:
                case Share(value):
                    self._add(hubs[value])
                case Execute(position):
                    self._add(ops[position])
                case Read(value, reader):
                    if reader.op is None and reader.operand not in self.graph.replaced:
                        self._add(self._layout(Role.OUTPUT, str(reader.operand), value))
        for unread in waiting:
            self._add(self._layout(Role.INPUT, unread, unread))
        return list(self.listed.values())

    def _add(self, variable: Variable) -> None:
        self.listed[variable.role, variable.name] = variable

    def _op(self, op: Op) -> Variable:
        kinds = tuple(self.graph.types[value] for value in op.inputs)
        rule = op.rule
        key = (op.op, rule.operands, rule.results, rule.loops, kinds, op.results)
        if key not in self.by_signature:
            found = candidates(op, kinds, self.model)
            self.by_signature[key] = Variable(
                Role.OP,
                "",
                np.array([c.cost_ps for c in found], np.int64),
                tuple(Port.of(c.results[i] for c in found) for i in range(len(op.results))),
                tuple(Port.of(c.operands[i] for c in found) for i in range(len(kinds))),
                tuple(c.option for c in found),
            )
        like = self.by_signature[key]
        variable = Variable(Role.OP, op.id, like.costs, like.results, like.operands, like.options)
        uses = [*map(Use, op.values), *(Use(value, op.id, k) for k, value in enumerate(op.inputs))]
        return self._pinned(self._chosen(variable, op), uses)

    def _layout(self, role: Role, name: str, value: str) -> Variable:
        kind = self.graph.types[value]
        if (role, kind) not in self.by_signature:
            port = self._whole(kind)
            made, read = ((port,), ()) if role is Role.INPUT else ((), (port,))
            costs = np.zeros(len(port.states), np.int64)
            self.by_signature[role, kind] = Variable(role, "", costs, made, read)
        like = self.by_signature[role, kind]
        variable = Variable(role, name, like.costs, like.results, like.operands)
        if role is Role.INPUT:
            return self._pinned(variable, [Use(value)])
        return self._pinned(variable, [Use(value, OUTPUTS, int(name))])

    def _chosen(self, variable: Variable, op: Op) -> Variable:
        """Only the strategy of the option that is asked of the op itself, if one is."""
        if op.option is None:
            return variable
        wanted = Sharding(op.option).completed(len(op.rule.loops), self.model.mesh, f"option of node {op.id!r}")
        chosen = [s for s, option in enumerate(variable.options) if option == wanted.split_axes]
        if not chosen:
            wanted_text = "one of " + ", ".join(str(Sharding(option)) for option in variable.options[:6])
            raise InvalidSharding("no such option", where=f"node {op.id!r}", got=str(wanted), wanted=wanted_text)
        return variable.keep(np.array(chosen))

    def _pinned(self, variable: Variable, uses: Sequence[Use]) -> Variable:
        """Only the strategies that meet the required annotations of what the variable makes and reads, in order."""
        fits = np.ones(len(variable.costs), bool)
        for use, port in zip(uses, (*variable.results, *variable.operands), strict=True):
            for pin in self.pins.get(use.value, ()):
                if pin.user == use.user and pin.operand in (None, use.operand):
                    rank = len(self.graph.types[use.value].shape)
                    wanted = pin.sharding.completed(rank, self.model.mesh)
                    fits &= np.array([state == wanted for state in port.states])[port.classes]
                    if not fits.any():
                        raise _unmet(variable, port, wanted, use.value)
        return variable if fits.all() else variable.keep(np.flatnonzero(fits))

    def _hubs(self, ops: list[Variable], makers: dict[str, Port]) -> dict[str, Variable]:
        hubs = {}
        for value, who in readers(self.graph).items():
            if len(who) > 1:
                whole = self._whole(self.graph.types[value])
                read = [whole if r.op is None else ops[r.op].operands[r.operand] for r in who]
                hubs[value] = self._hub(value, [makers.get(value, whole), *read])
        return hubs

    def _hub(self, value: str, ends: list[Port]) -> Variable:
        """A hub of any state of its ends; values made and read alike share the port."""
        key = (Role.HUB, *map(id, ends))
        if key not in self.by_signature:
            port = Port.of(dict.fromkeys(state for end in dict.fromkeys(ends) for state in end.states))
            self.by_signature[key] = Variable(Role.HUB, "", np.zeros(len(port.states), np.int64), (port,), (port,))
        like = self.by_signature[key]
        return Variable(Role.HUB, value, like.costs, like.results, like.operands)

    def _whole(self, kind: TensorType) -> Port:
        """The shardings that an input or output may have."""
        if kind not in self.layouts:
            self.layouts[kind] = Port.of(layouts(kind, self.model.mesh))
        return self.layouts[kind]


def _made(op: Op, variable: Variable) -> Iterable[tuple[str, Port]]:
    return zip(op.values, variable.results, strict=True)


def _unmet(variable: Variable, port: Port, wanted: Sharding, value: str) -> InvalidSharding:
    return InvalidSharding(
        "no option gives the required sharding",
        where=f"value {value!r} at {variable.role} {variable.name!r}",
        got=str(wanted),
        wanted="one of " + ", ".join(map(str, port.states[:6])),
    )
