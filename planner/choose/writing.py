"""Nodes and edges of the choice problem, step by step; what they use, and while (`planner.choose.formulate`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.choose.port import Port
from planner.choose.tables import Blocks, Lines, Tables
from planner.choose.timeline import Life, Timeline
from planner.choose.variables import Role, Variable
from planner.model.steps import Read, Reader, Share
from solvers import Edge, EdgeUsage, Node

Integers = NDArray[np.int64]
Span = tuple[int, int, Integers]
Use = tuple[int, int, Blocks]
"""Moments from and to, and what is held then."""


@dataclass
class Writing:
    """The parts of the problem in the order of the steps."""

    time: Timeline
    listed: list[Variable]
    tables: Tables
    classes: dict[tuple[int, int, Lines], NDArray[np.int32]] = field(default_factory=dict)
    alive: dict[tuple[int, int, tuple[bool, ...]], Integers] = field(default_factory=dict)
    nodes_known: dict[tuple[int, int], Node] = field(default_factory=dict)
    edges_known: dict[object, Edge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = self.time.doubled.graph
        self.at = {(v.role, v.name): i for i, v in enumerate(self.listed)}
        self.inputs = {i.id for i in self.graph.inputs}
        self.maker = {i.id: (self.at[Role.INPUT, i.id], 0) for i in self.graph.inputs}
        for op in self.graph.ops:
            self.maker |= {value: (self.at[Role.OP, op.id], k) for k, value in enumerate(op.values)}
        self.single = {op.id: op.values[0] for op in self.graph.ops if len(op.values) == 1}

    def nodes(self) -> list[Node]:
        return [self._node(f"{v.role} {v.name}", v.costs, self._spans(v)) for v in self.listed]

    def edges(self) -> list[Edge]:
        found = []
        for moment, step in enumerate(self.time.doubled.listed):
            if isinstance(step, Share):
                found.append(self._share(step.value, moment))
                if step.value in self.time.doubled.first:
                    found.append(self._link(self.time.doubled.first[step.value], step.value))
            elif isinstance(step, Read):
                found.append(self._read(step.value, step.reader, moment))
        return found

    def _node(self, name: str, costs: Integers, spans: list[Span]) -> Node:
        """Nodes that differ by name and moments alone are checked once."""
        if len(spans) != 1:
            return Node.over(name, costs, spans)
        ((start, stop, usage),) = spans
        key = id(costs), id(usage)
        if key not in self.nodes_known:
            self.nodes_known[key] = Node.over(name, costs, spans)
        return self.nodes_known[key].at(name, start, stop)

    def _spans(self, variable: Variable) -> list[Span]:
        """A node's own usage: of an input, a hub, an op's only result, or the results nobody reads."""
        match variable.role:
            case Role.INPUT:
                return [(0, self.time.end + 1, self.tables.held(variable.name, variable.results[0]))]
            case Role.HUB if variable.name not in self.inputs:
                return self._lived(variable)
            case Role.OP:
                position = self._position[variable.name]
                made, values = self.time.ran[position], self.graph.ops[position].values
                if variable.name in self.single and values[0] in self.time.reads:
                    return [(made, self.time.left(values[0]), self.tables.held(values[0], variable.results[0]))]
                unread = [(v, p) for v, p in zip(values, variable.results, strict=True) if v not in self.time.reads]
                nothing = np.zeros(len(variable.costs), np.int64)
                return [(made, made + 1, sum((self.tables.held(v, p) for v, p in unread), nothing))]
            case _:
                return []

    def _lived(self, hub: Variable) -> list[Span]:
        """What a hub's strategies hold between the moments at which any of its lives begins or ends."""
        whens = [self.time.held(hub.name, life) for life in hub.lives]
        moments = sorted({moment for start, stop in whens if start < stop for moment in (start, stop)})
        return [
            (start, stop, self._alive(hub, tuple(first <= start < last for first, last in whens)))
            for start, stop in pairwise(moments)
        ]

    def _alive(self, hub: Variable, lives: tuple[bool, ...]) -> Integers:
        """[strategies]: what a hub holds while only some of its lives last."""
        held = self.tables.held(hub.name, hub.results[0])
        key = id(held), id(hub.life), lives
        if key not in self.alive:
            assert hub.life is not None
            self.alive[key] = held * np.array(lives)[hub.life]
        return self.alive[key]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {op.id: i for i, op in enumerate(self.graph.ops)}

    def _share(self, value: str, moment: int) -> Edge:
        """From the maker of a value to its hub. What is made again, or may be, for one reader stays as it is made."""
        maker, result = self.maker[value]
        hub = self.at[Role.HUB, value]
        lives = self.listed[hub].lives
        comes = [life is not None and not (life.linked and value in self.time.doubled.first) for life in lives]
        way = ["same" if self.time.stays(value, life) else "time" for life in lives]
        costs = [tuple(name if own else "barred" for name, own in zip(way, comes, strict=True))]
        costs += [tuple("barred" if own else "free" for own in comes)] if self._optional(maker) else []
        uses = [
            (moment, moment + 1, ["beside" if value in self.inputs else "through" if own else "free" for own in comes])
        ]
        if value in self.inputs:
            ends = {self.time.after(life.last): life for life in lives if life is not None}
            uses += [
                (moment + 1, end, ["changed" if life == own else "free" for life in lives]) for end, own in ends.items()
            ]
        idle = [("free",) * len(lives)] * (len(costs) - 1)
        used = [(start, stop, (tuple(line), *idle)) for start, stop, line in uses]
        ports = self.listed[maker].results[result], self.listed[hub].operands[0]
        return self._edge(maker, hub, value, ports, tuple(costs), used + self._source(value, moment))

    def _optional(self, node: int) -> bool:
        """Whether it is an op that the plan may do without."""
        variable = self.listed[node]
        return variable.role is Role.OP and variable.name in self.time.doubled.first

    def _link(self, value: str, copy: str) -> Edge:
        """Between the hubs of a value and of its copy: where it is kept, they are one."""
        ends = self.at[Role.HUB, value], self.at[Role.HUB, copy]
        ports = self.listed[ends[0]].results[0], self.listed[ends[1]].operands[0]
        costs = tuple(
            tuple(_linked(one, other) for other in self.listed[ends[1]].lives) for one in self.listed[ends[0]].lives
        )
        return self._edge(*ends, value, ports, costs, [])

    def _read(self, value: str, reader: Reader, moment: int) -> Edge:
        shared = value in self.time.shared
        maker, result = (self.at[Role.HUB, value], 0) if shared else self.maker[value]
        op = None if reader.op is None else self.graph.ops[reader.op].id
        user, taken = self._output(reader.operand) if op is None else self._operand(op, reader.operand)
        ports = self.listed[maker].results[result], taken
        place = self.time.place(reader)
        lives = self.listed[maker].lives if shared else (Life(place),)
        ways = [self._way(value, life, reader, shared) for life in lives]
        idle = [("barred" if life and life.last == place else "free", "free", "free") for life in lives]
        costs, during, after = (
            tuple((way[n], *((rest[n],) if self._optional(user) else ())) for way, rest in zip(ways, idle, strict=True))
            for n in range(3)
        )
        used = [(moment, moment + 1, during), (moment + 1, self.time.after(place), after)]
        return self._edge(maker, user, value, ports, costs, used + ([] if shared else self._source(value, moment)))

    def _way(self, value: str, life: Life | None, reader: Reader, shared: bool) -> tuple[str, str, str]:
        """What a read costs, and holds while it lasts and after it."""
        if life is None or life.last < self.time.place(reader):
            return "barred", "free", "free"
        last = value not in self.inputs and (not shared or self.time.ends(value, life, reader))
        return ("time", "through", "copy") if last else ("time", "beside", "changed")

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

    def _source(self, value: str, moment: int) -> list[Use]:
        """What an op with several results holds of each until it is first read."""
        maker = self.listed[self.maker[value][0]]
        if maker.role is Role.INPUT or maker.name in self.single:
            return []
        lives = self.listed[self.at[Role.HUB, value]].lives if value in self.time.shared else ()
        return [(self.time.made[value], moment, (("source",) * max(1, len(lives)),))]

    def _edge(self, maker: int, user: int, value: str, ports: tuple[Port, Port], cost: Blocks, uses: list[Use]) -> Edge:
        """Edges that differ by their nodes and moments alone are put together and checked once."""
        blocks, lives = (cost, *(held for _, _, held in uses)), (self.listed[maker].life, self.listed[user].life)
        spans = {n: (start, stop) for n, (start, stop, _) in enumerate(uses) if start < stop}
        key = (id(self.tables.by_value[value]), *map(id, (*ports, *lives)), blocks, *spans)
        if key not in self.edges_known:
            rows = Lines.of([tuple(block[row] for block in blocks) for row in range(len(cost))])
            columns = Lines.of([tuple(tuple(c[n] for c in block) for block in blocks) for n in range(len(cost[0]))])
            matrix, *held = (self.tables.matrix(value, ports, block, rows, columns) for block in blocks)
            ends = self._classes(maker, ports[0], rows), self._classes(user, ports[1], columns)
            used = tuple(EdgeUsage(*span, held[n]) for n, span in spans.items())
            self.edges_known[key] = Edge(maker, user, *ends, matrix, usages=used)
        return self.edges_known[key].between(maker, user, list(spans.values()))

    def _classes(self, node: int, port: Port, lines: Lines) -> NDArray[np.int32]:
        """The class of every strategy: by its line and, in one that tells them apart, its sharding."""
        life = self.listed[node].life
        if life is None:
            return port.classes
        key = id(port), id(life), lines
        if key not in self.classes:
            sizes = [len(port.states) if wide else 1 for wide in lines.wide]
            start, wide = np.cumsum([0, *sizes[:-1]])[list(lines.of_life)], np.array(lines.wide)[list(lines.of_life)]
            self.classes[key] = (start[life] + np.where(wide[life], port.classes, 0)).astype(np.int32)
        return self.classes[key]


def _linked(one: Life | None, other: Life | None) -> str:
    handed, taken = one is not None and one.linked, other is not None and other.linked
    return "same" if handed and taken else "barred" if handed or taken else "free"
