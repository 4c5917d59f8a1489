"""The variables of the assignment problem: a sharding per graph input and output, an option per op, a shared copy.

A value with several readers has a shared copy: the sharding into which it is brought before they read it, so that a
common reshard is paid once. It is any sharding in which the value is produced or read. Where the readers depend on the
plan, the shared copy also decides how long the value lives (`planner.choose.liveness`).

An op that a plan need not run has one more strategy, the last: not to run. The class of its operands and results is
then `len(states)`, as is that of a shared copy whose value is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel, price_key
from planner.choose.liveness import Liveness, SharedLifetime
from planner.choose.operand_layouts import OperandLayouts
from planner.choose.options import distinct_options, list_layouts
from planner.errors import InvalidSharding
from planner.ir.execution_order import Execute, Read, Share, Shrink
from planner.ir.graph import OUTPUTS, Op, TensorType
from planner.ir.indexing import Option, format_option
from planner.ir.pins import list_pins
from planner.ir.sharding import Sharding


class Role(StrEnum):
    """What a variable decides."""

    INPUT = "input"
    OP = "op"
    SHARED_COPY = "hub"
    OUTPUT = "output"


class ValueUse(NamedTuple):
    """The definition of a value (no user), or its use by a user as one of its operands."""

    value: str
    user: str | None = None
    operand: int | None = None


@dataclass(frozen=True, eq=False)
class Variable:
    """One decision, with a cost in ps per strategy.

    results, operands  layouts of the values that it produces and reads, by strategy
    options            of an op: the option of each strategy
    buffers            of an op: the bytes that it holds beside operands and results while it runs; None: nothing
    lifetimes          of a shared copy: those of the value; strategy s has `lifetimes[lifetime_of[s]]`
    lifetime_of        of an op that need not run: 1 for the strategy not to run, else 0
    """

    role: Role
    name: str
    costs: NDArray[np.int64]
    results: tuple[OperandLayouts, ...] = ()
    operands: tuple[OperandLayouts, ...] = ()
    options: tuple[Option, ...] = ()
    buffers: NDArray[np.int64] | None = None
    lifetimes: tuple[SharedLifetime | None, ...] = ()
    lifetime_of: NDArray[np.int32] | None = None

    def with_none(self) -> Variable:
        """Return the variable with one more strategy, at no cost: not to run."""
        results, operands = (tuple(port.with_none() for port in ports) for ports in (self.results, self.operands))
        # Not running costs nothing here: the edges forbid it wherever somebody reads the result.
        life = np.append(np.zeros(len(self.costs), np.int32), np.int32(1))
        buffers = None if self.buffers is None else np.append(self.buffers, 0)
        costs = np.append(self.costs, 0)
        return replace(self, costs=costs, results=results, operands=operands, buffers=buffers, lifetime_of=life)

    def select(self, chosen: NDArray[np.intp]) -> Variable:
        """Return the variable with some of its strategies only."""
        return Variable(
            self.role,
            self.name,
            self.costs[chosen],
            tuple(port.select(chosen) for port in self.results),
            tuple(port.select(chosen) for port in self.operands),
            tuple(self.options[s] for s in chosen) if self.options else (),
            None if self.buffers is None else self.buffers[chosen],
        )


def list_variables(
    time: Liveness, model: CostModel, units: AxisUnits, *, tick: Callable[[], None] = lambda: None
) -> list[Variable]:
    """Return the variables in the order of the steps. Raises InvalidSharding for a pin that no option meets."""
    return _VariableBuilder(time, model, units, tick).all()


@dataclass(frozen=True)
class PinnedVariables:
    """The variables of single ops, restricted to what the pins allow."""

    liveness: Liveness
    model: CostModel
    units: AxisUnits

    @cached_property
    def _builder(self) -> _VariableBuilder:
        return _VariableBuilder(self.liveness, self.model, self.units, lambda: None)

    def find_op(self, op: Op) -> Variable:
        """Return the variable of an op. Raises InvalidSharding for a pin that no option meets."""
        return self._builder.add_op(op)


@dataclass
class _VariableBuilder:
    liveness: Liveness
    model: CostModel
    units: AxisUnits
    tick: Callable[[], None]
    listed: dict[tuple[Role, str], Variable] = field(default_factory=dict)
    by_signature: dict[object, Variable] = field(default_factory=dict)
    layouts: dict[TensorType, OperandLayouts] = field(default_factory=dict)
    optional: dict[object, tuple[Variable, Variable]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = self.liveness.with_clones.graph
        self.pins = list_pins(self.graph, self.model.mesh)

    def all(self) -> list[Variable]:
        ops = [self.add_op(op) for op in self.graph.ops]
        makers = {
            value: port for op, v in zip(self.graph.ops, ops, strict=True) for value, port in _result_layouts(op, v)
        }
        hubs = self._add_shared_copies(ops, makers)
        # An input comes right before its first reader. Message passing follows this order, and it is tighter where
        # neighbours are near each other.
        waiting = dict.fromkeys(i.id for i in self.graph.inputs)
        for step in self.liveness.with_clones.listed:
            if isinstance(step, Share | Read) and step.value in waiting:
                waiting.pop(step.value)
                self._add(self._add_layout(Role.INPUT, step.value, step.value))
            match step:
                case Share(value):
                    self._add(hubs[value])
                case Execute(position):
                    self._add(ops[position])
                case Read(value, reader):
                    if reader.op is None and reader.operand not in self.graph.state_outputs:
                        self._add(self._add_layout(Role.OUTPUT, str(reader.operand), value))
                case Shrink():
                    pass
        for unread in waiting:
            self._add(self._add_layout(Role.INPUT, unread, unread))
        return list(self.listed.values())

    def _add(self, variable: Variable) -> None:
        self.listed[variable.role, variable.name] = variable

    def add_op(self, op: Op) -> Variable:
        kinds = tuple(self.graph.types[value] for value in op.inputs)
        # Equal ops of repeated layers share one rule object, so its id is enough and is hashed faster than its loops.
        runs = self.graph.count_runs(op)
        key = (price_key(op), id(op.rule), kinds, op.results, runs)
        if key not in self.by_signature:
            self.tick()
            candidates = distinct_options(op, kinds, self.model, units=self.units)
            self.by_signature[key] = Variable(
                Role.OP,
                "",
                runs * candidates.costs_ps,
                candidates.results,
                candidates.operands,
                candidates.options,
                candidates.buffers if candidates.buffers.any() else None,
            )
        variable = replace(self.by_signature[key], name=op.id)
        uses = [*map(ValueUse, op.values), *(ValueUse(value, op.id, k) for k, value in enumerate(op.inputs))]
        pinned = self._apply_pins(self._fix_option(variable, op), uses)
        if op.id not in self.liveness.with_clones.clone_of:
            return pinned
        ports = (id(pinned.costs), *map(id, (*pinned.results, *pinned.operands)))
        if ports not in self.optional:
            self.optional[ports] = pinned, pinned.with_none()
        return replace(self.optional[ports][1], name=op.id)

    def _add_layout(self, role: Role, name: str, value: str) -> Variable:
        kind = self.graph.types[value]
        if (role, kind) not in self.by_signature:
            port = self._whole_layouts(kind)
            results, operands = ((port,), ()) if role is Role.INPUT else ((), (port,))
            costs = np.zeros(len(port.states), np.int64)
            self.by_signature[role, kind] = Variable(role, "", costs, results, operands)
        like = self.by_signature[role, kind]
        variable = Variable(role, name, like.costs, like.results, like.operands)
        if role is Role.INPUT:
            return self._apply_pins(variable, [ValueUse(value)])
        return self._apply_pins(variable, [ValueUse(value, OUTPUTS, int(name))])

    def _fix_option(self, variable: Variable, op: Op) -> Variable:
        """Restrict an op to the option that its document requires, if it does."""
        if op.option is None:
            return variable
        asked = op.rule.complete_option(op.option, self.model.mesh, f"option of node {op.id!r}")
        chosen = [s for s, option in enumerate(variable.options) if option == asked]
        if not chosen:
            wanted, got = "one of " + ", ".join(map(format_option, variable.options[:6])), format_option(asked)
            raise InvalidSharding("no such option", where=f"node {op.id!r}", got=got, wanted=wanted)
        return variable.select(np.array(chosen))

    def _apply_pins(self, variable: Variable, uses: Sequence[ValueUse]) -> Variable:
        """Restrict a variable to the strategies that meet the pins of its results and operands, listed in `uses`."""
        fits = None
        for use, port in zip(uses, (*variable.results, *variable.operands), strict=True):
            for pin in self.pins.get(use.value, ()):
                if pin.user == use.user and pin.operand in (None, use.operand):
                    rank = len(self.graph.types[use.value].shape)
                    wanted = pin.sharding.complete(rank, self.model.mesh)
                    meets = np.array([state == wanted for state in port.states])[port.classes]
                    fits = meets if fits is None else fits & meets
                    if not fits.any():
                        raise _unmet_pin(variable, port, wanted, value=use.value)
        return variable if fits is None or fits.all() else variable.select(np.flatnonzero(fits))

    def _add_shared_copies(self, ops: list[Variable], makers: dict[str, OperandLayouts]) -> dict[str, Variable]:
        hubs = {}
        again, first = self.liveness.with_clones.clones, self.liveness.with_clones.clone_of
        ends = {}
        for value in self.liveness.shared_at:
            whole = self._whole_layouts(self.graph.types[value])
            read = [whole if r.op is None else ops[r.op].operands[r.operand] for _, r in self.liveness.reads_at[value]]
            ends[value] = [makers.get(value, whole), *read]
        for value, own in ends.items():
            other = again.get(value, first.get(value))
            hubs[value] = self._shared_copy(value, own, [] if other is None else ends[other])
        return hubs

    def _shared_copy(self, value: str, own: list[OperandLayouts], other: list[OperandLayouts]) -> Variable:
        """Return the shared copy of a value: any sharding in which it, or its clone, is produced or read.

        A value with a single reader stays as it is produced. Values with equal layouts share their arrays.
        """
        lives = self.liveness.lifetimes(value)
        ports = own[:1] if any(self.liveness.is_in_place(value, life) for life in lives) else own
        kinds = tuple(life and life.is_kept for life in lives)
        key = (Role.SHARED_COPY, kinds, len(ports), *map(id, own), 0, *map(id, other))
        if key not in self.by_signature:
            every = _merge_states((*own, *other) if value in self.liveness.with_clones.clones else (*other, *own))
            offered = {None: None, True: every, False: _merge_states(ports)}
            self.by_signature[key] = _shared_copy_variable(tuple(every), [offered[kind] for kind in kinds])
        like = self.by_signature[key]
        return Variable(
            Role.SHARED_COPY,
            value,
            like.costs,
            like.results,
            like.operands,
            lifetimes=lives,
            lifetime_of=like.lifetime_of,
        )

    def _whole_layouts(self, kind: TensorType) -> OperandLayouts:
        """Return the shardings that an input or output may have."""
        if kind not in self.layouts:
            self.layouts[kind] = OperandLayouts.of(list_layouts(kind, self.model.mesh, self.units))
        return self.layouts[kind]


def _merge_states(ports: Iterable[OperandLayouts]) -> dict[Sharding, None]:
    return dict.fromkeys(state for port in dict.fromkeys(ports) for state in port.states)


def _shared_copy_variable(states: tuple[Sharding, ...], offered: Sequence[Iterable[Sharding] | None]) -> Variable:
    """Build a shared copy with these states; `offered` are those of each lifetime (None: the value is not computed)."""
    number = {state: i for i, state in enumerate(states)}
    listed = [[len(states)] if some is None else [number[state] for state in some] for some in offered]
    port = OperandLayouts(states, np.array([state for each in listed for state in each], np.int32))
    life = np.repeat(np.arange(len(listed), dtype=np.int32), [len(each) for each in listed])
    return Variable(Role.SHARED_COPY, "", np.zeros(len(life), np.int64), (port,), (port,), lifetime_of=life)


def _result_layouts(op: Op, variable: Variable) -> Iterable[tuple[str, OperandLayouts]]:
    return zip(op.values, variable.results, strict=True)


def _unmet_pin(variable: Variable, port: OperandLayouts, wanted: Sharding, *, value: str) -> InvalidSharding:
    return InvalidSharding(
        "no option gives the required sharding",
        where=f"value {value!r} at {variable.role} {variable.name!r}",
        got=str(wanted),
        wanted="one of " + ", ".join(map(str, port.states[:6])),
    )
