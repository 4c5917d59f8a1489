"""The planner's question as a choice problem, and the answer back. A strategy of `solvers` is an option here.

A node for every variable; an edge between the maker of a value, or its hub, and each reader, which costs the
cheapest reshard. Costs are picoseconds, so the objective is the program's time.

Moments are the steps of `planner.model.steps` and a last one for the finished program. A value counts from the
step that makes it to the step that last reads it:
    one reader      node [made, read); edge: the chain's peak at read, the copy after it until the reader has run
    several         node [made, shared); hub [shared + 1, last read); the last reader's edge as above, the
                    others' beside the source, with no copy where nothing changed
    graph input     lives throughout; only copies count
The count is exact but for two cautious roundings: where the last op reads a shared value twice, and where a
graph input is shared, the hub counts until that op has run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel
from planner.choose.reshard import Distances
from planner.choose.variables import Port, Role, Variable, variables
from planner.model.graph import Graph
from planner.model.indexing import Option
from planner.model.sharding import Reduction, Sharding
from planner.model.steps import Execute, Read, Reader, Share, steps
from solvers import Edge, EdgeUsage, Node, Problem

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Choice:
    """What was chosen: a layout per graph input and output, an option per op, a sharding per shared value."""

    inputs: dict[str, Sharding]
    options: dict[str, Option]
    shared: dict[str, Sharding]
    outputs: tuple[Sharding, ...]


@dataclass(frozen=True)
class Formulation:
    """A graph's choice problem with what its numbers mean; `distances` has a table for every value."""

    graph: Graph
    model: CostModel
    variables: tuple[Variable, ...]
    problem: Problem
    distances: dict[str, Distances]

    @cached_property
    def index(self) -> dict[tuple[Role, str], int]:
        return {(variable.role, variable.name): i for i, variable in enumerate(self.variables)}

    def decode(self, strategies: Sequence[int]) -> Choice:
        """The planner's choice of the solver's."""
        picked = list(zip(self.variables, strategies, strict=True))

        def made(role: Role) -> dict[str, Sharding]:
            ports = [(v, (*v.results, *v.operands)[0], s) for v, s in picked if v.role is role]
            return {v.name: port.states[port.classes[s]] for v, port, s in ports}

        inputs, own = made(Role.INPUT), made(Role.OUTPUT)
        replaced = self.graph.replaced
        return Choice(
            inputs,
            {v.name: v.options[s] for v, s in picked if v.role is Role.OP},
            made(Role.HUB),
            tuple(inputs[replaced[n]] if n in replaced else own[str(n)] for n in range(len(self.graph.outputs))),
        )


def formulate(graph: Graph, model: CostModel, limit: int | None = None) -> Formulation:
    """The choice problem of a graph on the model's mesh, under a limit of bytes per device.

    Grows linearly in ops; with (dims + 2)^axes options an op has and the square of that for an edge.
    """
    listed = variables(graph, model)
    builder = _Builder(graph, model, listed, _Timeline.of(graph))
    problem = Problem(builder.nodes(), builder.edges(), limit)
    return Formulation(graph, model, tuple(listed), problem, builder.tables)


@dataclass(frozen=True)
class _Timeline:
    """Moments: when every value is made, shared and read, when every op has run, and the end."""

    made: dict[str, int]
    shared: dict[str, int]
    reads: dict[str, list[tuple[int, Reader]]]
    ran: dict[int, int]
    end: int

    @classmethod
    def of(cls, graph: Graph) -> _Timeline:
        listed = steps(graph)
        timeline = cls({}, {}, {}, {}, len(listed))
        for moment, step in enumerate(listed):
            match step:
                case Share(value):
                    timeline.shared[value] = moment
                case Read(value, reader):
                    timeline.reads.setdefault(value, []).append((moment, reader))
                case Execute(position):
                    timeline.ran[position] = moment
                    timeline.made.update(dict.fromkeys(graph.ops[position].values, moment))
        return timeline

    def left(self, value: str) -> int:
        """The moment at which a value, as it was made, is first read."""
        return self.shared.get(value, self.reads[value][0][0])

    def done(self, reader: Reader) -> int:
        """The first moment at which a reader's copies are dead."""
        return self.end + 1 if reader.op is None else self.ran[reader.op] + 1

    def ends(self, value: str, moment: int) -> bool:
        """Whether the read at a moment is the last of a shared value, and the only one by its op."""
        (last, by), before = self.reads[value][-1], self.reads[value][-2]
        return moment == last and by.op != before[1].op

    def hub(self, value: str) -> tuple[int, int]:
        last, by = self.reads[value][-1]
        return self.shared[value] + 1, last if self.ends(value, last) else self.done(by)


@dataclass
class _Builder:
    graph: Graph
    model: CostModel
    listed: list[Variable]
    time: _Timeline
    tables: dict[str, Distances] = field(default_factory=dict)
    cache: dict[object, object] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    by_states: dict[tuple[Sharding, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at = {(v.role, v.name): i for i, v in enumerate(self.listed)}
        self.maker = {i.id: (self.at[Role.INPUT, i.id], 0) for i in self.graph.inputs}
        for op in self.graph.ops:
            self.maker |= {value: (self.at[Role.OP, op.id], k) for k, value in enumerate(op.values)}
        self.inputs = {i.id for i in self.graph.inputs}
        self.single = {op.id: op.values[0] for op in self.graph.ops if len(op.values) == 1}
        self.windows: dict[str, set[Sharding]] = defaultdict(set)
        for op in self.graph.ops:
            for operand in op.rule.windows:
                self.windows[op.inputs[operand]].update(self.listed[self.at[Role.OP, op.id]].operands[operand].states)
        for value in self.graph.types:
            self.tables[value] = self._distances(value)

    def nodes(self) -> list[Node]:
        return [Node(f"{v.role} {v.name}", v.costs, *self._life(v)) for v in self.listed]

    def edges(self) -> list[Edge]:
        found = []
        for moment, step in enumerate(steps(self.graph)):
            if isinstance(step, Share):
                found.append(self._share(step.value, moment))
            elif isinstance(step, Read):
                found.append(self._read(step.value, step.reader, moment))
        return found

    def _life(self, variable: Variable) -> tuple[Integers, tuple[int, int]]:
        """A node's own usage: of an input, a hub, an op's only result, or the results nobody reads."""
        nothing = np.zeros(len(variable.costs), np.int64)
        match variable.role:
            case Role.INPUT:
                return self._held(variable.name, variable.results[0]), (0, self.time.end + 1)
            case Role.HUB if variable.name not in self.inputs:
                return self._held(variable.name, variable.results[0]), self.time.hub(variable.name)
            case Role.OP:
                made = self.time.ran[self._position[variable.name]]
                values = self.graph.ops[self._position[variable.name]].values
                if variable.name in self.single and values[0] in self.time.reads:
                    return self._held(values[0], variable.results[0]), (made, self.time.left(values[0]))
                unread = [(v, p) for v, p in zip(values, variable.results, strict=True) if v not in self.time.reads]
                return sum((self._held(v, p) for v, p in unread), nothing), (made, made + 1)
            case _:
                return nothing, (0, 0)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {op.id: i for i, op in enumerate(self.graph.ops)}

    def _share(self, value: str, moment: int) -> Edge:
        maker, result = self.maker[value]
        hub = self.at[Role.HUB, value]
        ports = self.listed[maker].results[result], self.listed[hub].operands[0]
        if value in self.inputs:
            last = self.time.done(self.time.reads[value][-1][1])
            usages = [(moment, moment + 1, "beside"), (moment + 1, last, "changed")]
        else:
            usages = [(moment, moment + 1, "through"), *self._source(value, moment)]
        return self._edge(maker, hub, value, ports, usages)

    def _read(self, value: str, reader: Reader, moment: int) -> Edge:
        shared = value in self.time.shared
        maker, result = (self.at[Role.HUB, value], 0) if shared else self.maker[value]
        op = None if reader.op is None else self.graph.ops[reader.op].id
        user, taken = self._output(reader.operand) if op is None else self._operand(op, reader.operand)
        ports = self.listed[maker].results[result], taken
        last = value not in self.inputs and (not shared or self.time.ends(value, moment))
        during, after = ("through", "copy") if last else ("beside", "changed")
        usages = [(moment, moment + 1, during), (moment + 1, self.time.done(reader), after)]
        return self._edge(maker, user, value, ports, usages + ([] if shared else self._source(value, moment)))

    def _operand(self, op: str, operand: int) -> tuple[int, Port]:
        user = self.at[Role.OP, op]
        return user, self.listed[user].operands[operand]

    def _output(self, number: int) -> tuple[int, Port]:
        """What decides an output's layout: the input whose place it takes in the next run, or its own variable."""
        if number in self.graph.replaced:
            user = self.at[Role.INPUT, self.graph.replaced[number]]
            return user, self.listed[user].results[0]
        user = self.at[Role.OUTPUT, str(number)]
        return user, self.listed[user].operands[0]

    def _source(self, value: str, moment: int) -> list[tuple[int, int, str]]:
        """What an op with several results holds of each until it is first read."""
        maker = self.listed[self.maker[value][0]]
        if maker.role is Role.INPUT or maker.name in self.single:
            return []
        return [(self.time.made[value], moment, "source")]

    def _edge(
        self, maker: int, user: int, value: str, ports: tuple[Port, Port], usages: list[tuple[int, int, str]]
    ) -> Edge:
        on_edge = tuple(
            EdgeUsage(start, stop, self._matrix(value, ports, what)) for start, stop, what in usages if start < stop
        )
        cost = self._matrix(value, ports, "time")
        return Edge(maker, user, ports[0].classes, ports[1].classes, cost, usages=on_edge)

    def _matrix(self, value: str, ports: tuple[Port, Port], what: str) -> Integers:
        table = self.tables[value]
        key = (id(table), *map(self._number, ports), what)
        if key not in self.cache:
            rows, columns = (self._rows(table, port) for port in ports)
            self.cache[key] = np.ascontiguousarray(table.between(what)[np.ix_(rows, columns)])
        found = self.cache[key]
        assert isinstance(found, np.ndarray)
        return found

    def _number(self, port: Port) -> int:
        """Equal for ports of equal states, whose matrices are then the same."""
        if id(port) not in self.numbers:
            self.numbers[id(port)] = self.by_states.setdefault(port.states, len(self.by_states))
        return self.numbers[id(port)]

    def _rows(self, table: Distances, port: Port) -> Integers:
        key = (id(table), self._number(port))
        if key not in self.cache:
            self.cache[key] = np.array([table.index[state] for state in port.states])
        found = self.cache[key]
        assert isinstance(found, np.ndarray)
        return found

    def _held(self, value: str, port: Port) -> Integers:
        table = self.tables[value]
        held: Integers = table.bytes[self._rows(table, port)][port.classes]
        return held

    def _distances(self, value: str) -> Distances:
        maker, result = self.maker[value]
        states = self.listed[maker].results[result].states
        reductions = frozenset({Reduction.SUM, *(state.reduction for state in states)})
        read = tuple(sorted(self.windows[value]))
        key = (self.graph.types[value], reductions, read)
        if key not in self.cache:
            self.cache[key] = Distances.of(self.graph.types[value], reductions, self.model, read)
        found = self.cache[key]
        assert isinstance(found, Distances)
        return found
