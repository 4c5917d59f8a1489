"""Build the nodes and edges of the assignment problem, with their memory usages (`planner.choose.formulate`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.choose.edge_matrices import EdgeMatrices, LifetimeRows, MatrixBlocks
from planner.choose.left_usages import LeftUsages, UsageSpan, add_usages
from planner.choose.liveness import Liveness, SharedLifetime
from planner.choose.operand_layouts import OperandLayouts
from planner.choose.variables import Role, Variable
from planner.ir.execution_order import Read, Reader, Share
from solvers import Edge, EdgeUsage, Node

Integers = NDArray[np.int64]
UsageBlocks = tuple[int, int, MatrixBlocks]
"""First step, step after the last, and the blocks of what is held in between."""


@dataclass
class ProblemBuilder:
    """Builds the nodes and edges of a problem, in the order of the steps."""

    liveness: Liveness
    listed: list[Variable]
    tables: EdgeMatrices
    classes: dict[tuple[int, int, LifetimeRows], NDArray[np.int32]] = field(default_factory=dict)
    alive: dict[tuple[int, int, tuple[bool, ...]], Integers] = field(default_factory=dict)
    node_cache: dict[tuple[int, int], Node] = field(default_factory=dict)
    edge_cache: dict[object, Edge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = self.liveness.with_clones.graph
        self.at = {(v.role, v.name): i for i, v in enumerate(self.listed)}
        self.inputs = {i.id for i in self.graph.inputs}
        self.maker = {i.id: (self.at[Role.INPUT, i.id], 0) for i in self.graph.inputs}
        self.maker |= {v: (self.at[Role.OP, op.id], k) for op in self.graph.ops for k, v in enumerate(op.values)}
        self.values = {op.id: op.values for op in self.graph.ops}
        self.left = LeftUsages(self.liveness, self.tables)

    def nodes(self) -> list[Node]:
        nodes = []
        for each in self.listed:
            self.tables.on_built(len(self.graph.types))
            more = self.left.of_variable(each)
            if each.buffers is not None:
                more.append(((moment := self.liveness.moments[each.name]), moment + 1, each.buffers))
            spans = add_usages(self._node_usage(each), more)
            nodes.append(self._make_node(f"{each.role} {each.name}", each.costs, spans))
        return nodes

    def edges(self) -> list[Edge]:
        edges = []
        for moment, step in enumerate(self.liveness.with_clones.listed):
            self.tables.on_built(len(self.graph.types))
            if isinstance(step, Share):
                edges.append(self._share_edge(step.value, moment))
                if step.value in self.liveness.with_clones.clone_of:
                    edges.append(self._link_edge(self.liveness.with_clones.clone_of[step.value], step.value))
            elif isinstance(step, Read):
                edges.append(self._read_edge(step.value, step.reader, moment))
        return edges

    def _make_node(self, name: str, costs: Integers, spans: list[UsageSpan]) -> Node:
        """Build a node. Nodes that differ in name and time steps only are validated once."""
        if len(spans) != 1:
            return Node.over(name, costs, spans)
        ((start, stop, usage),) = spans
        # Layers share these arrays, so their ids tell equal nodes apart from others at no cost. The cached node keeps
        # both arrays, so neither id is used again.
        key = id(costs), id(usage)
        if key not in self.node_cache:
            self.node_cache[key] = Node.over(name, costs, spans)
        return self.node_cache[key].at(name, start, stop)

    def _node_usage(self, variable: Variable) -> list[UsageSpan]:
        """Return the usage of an input, a shared copy, an op's only result, or an op's results without readers."""
        match variable.role:
            case Role.INPUT:
                return [(0, self.liveness.end + 1, self.tables.held(variable.name, variable.results[0]))]
            case Role.SHARED_COPY if variable.name not in self.inputs:
                return self._shared_copy_usage(variable)
            case Role.OP:
                values = self.values[variable.name]
                start = self.liveness.produced_at[values[0]]
                if len(values) == 1 and values[0] in self.liveness.reads_at:
                    stop = self.liveness.first_read_at(values[0])
                    return [(start, stop, self.tables.held(values[0], variable.results[0]))]
                unread = [
                    (v, p) for v, p in zip(values, variable.results, strict=True) if v not in self.liveness.reads_at
                ]
                # A result that nobody reads is still computed: it is held while its op runs. Results of several that
                # are read are held by the edges that lead out of them (`_result_usage`).
                nothing = np.zeros(len(variable.costs), np.int64)
                return [(start, start + 1, sum((self.tables.held(v, p) for v, p in unread), nothing))]
            case _:
                return []

    def _shared_copy_usage(self, hub: Variable) -> list[UsageSpan]:
        """Return the usage of a shared copy, between the steps at which any of its lifetimes begins or ends."""
        intervals = [self.liveness.held(hub.name, life) for life in hub.lifetimes]
        moments = sorted({moment for start, stop in intervals if start < stop for moment in (start, stop)})
        return [
            (start, stop, self._live_bytes(hub, tuple(first <= start < last for first, last in intervals)))
            for start, stop in pairwise(moments)
        ]

    def _live_bytes(self, hub: Variable, lives: tuple[bool, ...]) -> Integers:
        """Return the bytes `[strategies]` of a shared copy while only some of its lifetimes last."""
        held = self.tables.held(hub.name, hub.results[0])
        key = id(held), id(hub.lifetime_of), lives
        if key not in self.alive:
            assert hub.lifetime_of is not None
            self.alive[key] = held * np.array(lives)[hub.lifetime_of]
        return self.alive[key]

    def _share_edge(self, value: str, moment: int) -> Edge:
        """Build the edge from a value's producer to its shared copy.

        A recomputable value or clone with a single reader keeps the sharding in which it is produced.
        """
        maker, result = self.maker[value]
        hub = self.at[Role.SHARED_COPY, value]
        lives = self.listed[hub].lifetimes
        arrives = [
            life is not None and not (life.is_kept and value in self.liveness.with_clones.clone_of) for life in lives
        ]
        names = ["same" if self.liveness.is_in_place(value, life) else "time" for life in lives]
        costs = [tuple(name if own else "barred" for name, own in zip(names, arrives, strict=True))]
        costs += [tuple("barred" if own else "free" for own in arrives)] if self._is_optional(maker) else []
        during = "beside" if value in self.inputs else self._at_read(value)
        uses = [(moment, moment + 1, [during if own else "free" for own in arrives])]
        if value in self.inputs:
            # An input stays in memory, so its shared copy uses memory of its own only where its sharding differs.
            ends = {self.liveness.released_at(life.last): life for life in lives if life is not None}
            held = [
                (span, own)
                for end, own in ends.items()
                for span in [(moment + 1, end), *self.left.of_input_copy(value, own)]
            ]
            uses += [(*span, ["changed" if life == own else "free" for life in lives]) for span, own in held]
        # A clone that does not run has one more row, which uses nothing.
        idle = [("free",) * len(lives)] * (len(costs) - 1)
        used = [(start, stop, (tuple(line), *idle)) for start, stop, line in uses]
        ports = self.listed[maker].results[result], self.listed[hub].operands[0]
        return self._make_edge(
            maker,
            hub,
            value,
            ports=ports,
            cost=tuple(costs),
            uses=used + self._result_usage(value, moment),
            trips=self._count_trips(maker, maker, moment),
        )

    def _is_optional(self, node: int) -> bool:
        """Return whether a node is a clone, which a plan need not run."""
        variable = self.listed[node]
        return variable.role is Role.OP and variable.name in self.liveness.with_clones.clone_of

    def _link_edge(self, value: str, copy: str) -> Edge:
        """Build the edge between the shared copies of a value and its clone, which are equal where it is kept."""
        ends = self.at[Role.SHARED_COPY, value], self.at[Role.SHARED_COPY, copy]
        ports = self.listed[ends[0]].results[0], self.listed[ends[1]].operands[0]
        costs = tuple(
            tuple(_link_name(one, other) for other in self.listed[ends[1]].lifetimes)
            for one in self.listed[ends[0]].lifetimes
        )
        return self._make_edge(*ends, value, ports, costs, [])

    def _read_edge(self, value: str, reader: Reader, moment: int) -> Edge:
        shared = value in self.liveness.shared_at
        maker, result = (self.at[Role.SHARED_COPY, value], 0) if shared else self.maker[value]
        op = None if reader.op is None else self.graph.ops[reader.op].id
        user, layout = self._output_layout(reader.operand) if op is None else self._operand_layout(op, reader.operand)
        ports = self.listed[maker].results[result], layout
        place = self.liveness.position_of(reader)
        lives = self.listed[maker].lifetimes if shared else (SharedLifetime(place),)
        reads = [self._read_terms(value, life, reader, shared=shared) for life in lives]
        idle = [("barred" if life and life.last == place else "free", "free", "free") for life in lives]
        costs, during, after = (
            tuple(
                (terms[n], *((rest[n],) if self._is_optional(user) else ()))
                for terms, rest in zip(reads, idle, strict=True)
            )
            for n in range(3)
        )
        used = [(moment, moment + 1, during), (moment + 1, self.liveness.released_at(place), after)]
        return self._make_edge(
            maker,
            user,
            value,
            ports=ports,
            cost=costs,
            uses=used + ([] if shared else self._result_usage(value, moment)),
            trips=self._count_trips(self.maker[value][0], user, moment),
        )

    def _count_trips(self, maker: int, reader: int, moment: int) -> int:
        """Return how often a step takes the time to move a value between two variables."""
        ops = {each.name for each in (self.listed[maker], self.listed[reader]) if each.role is Role.OP}
        return 0 if ops & self.graph.free else self.liveness.count_trips(moment)

    def _read_terms(
        self, value: str, life: SharedLifetime | None, reader: Reader, *, shared: bool
    ) -> tuple[str, str, str]:
        """Return the blocks of a read: its cost, and its memory during and after it."""
        if life is None or life.last < self.liveness.position_of(reader):
            return "barred", "free", "free"
        last = value not in self.inputs and (not shared or self.liveness.is_last_read(value, life, reader))
        through = self._at_read(value) if not shared else "through"
        cost = "same" if reader.op is None and value in self.graph.sent else "time"
        return (cost, through, "copy") if last else (cost, "beside", "changed")

    def _operand_layout(self, op: str, operand: int) -> tuple[int, OperandLayouts]:
        user = self.at[Role.OP, op]
        return user, self.listed[user].operands[operand]

    def _output_layout(self, number: int) -> tuple[int, OperandLayouts]:
        """Return the variable of an output's layout: the input that it becomes in the next step, or its own."""
        if number in self.graph.state_outputs:
            user = self.at[Role.INPUT, self.graph.state_outputs[number]]
            return user, self.listed[user].results[0]
        user = self.at[Role.OUTPUT, str(number)]
        return user, self.listed[user].operands[0]

    def _result_usage(self, value: str, moment: int) -> list[UsageBlocks]:
        """Return the usage of a value until it is first read, apart from that of its node.

        That is the value itself where it is one of several results, and what the step that may shrink it leaves.
        """
        maker, shrunk = self.listed[self.maker[value][0]], self.liveness.shrunk_at.get(value, moment)
        spans = [(shrunk, shrunk + 1, "shrinking"), (shrunk + 1, moment, "smaller")] if shrunk < moment else []
        if maker.role is not Role.INPUT and len(self.values[maker.name]) > 1:
            spans.append((self.liveness.produced_at[value], shrunk, "source"))
        lives = self.listed[self.at[Role.SHARED_COPY, value]].lifetimes if value in self.liveness.shared_at else ()
        return [(start, stop, ((name,) * max(1, len(lives)),)) for start, stop, name in spans]

    def _at_read(self, value: str) -> str:
        """Return the block of what a value that is not an input uses while it is first read."""
        return "arriving" if value in self.liveness.shrunk_at else "through"

    def _make_edge(
        self,
        maker: int,
        user: int,
        value: str,
        ports: tuple[OperandLayouts, OperandLayouts],
        cost: MatrixBlocks,
        uses: list[UsageBlocks],
        *,
        trips: int = 1,
    ) -> Edge:
        """Build an edge whose cost is paid `trips` times.

        Edges that differ in nodes and time steps only are built and validated once.
        """
        blocks, lives = (
            (cost, *(held for _, _, held in uses)),
            (self.listed[maker].lifetime_of, self.listed[user].lifetime_of),
        )
        spans = {n: (start, stop) for n, (start, stop, _) in enumerate(uses) if start < stop}
        key = (id(self.tables.by_value[value]), *map(id, (*ports, *lives)), blocks, trips, *spans)
        if key not in self.edge_cache:
            # Lifetimes with equal blocks in every matrix share rows: recomputation would otherwise multiply the
            # matrices by the number of lifetimes at both ends.
            rows = LifetimeRows.of([tuple(block[row] for block in blocks) for row in range(len(cost))])
            columns = LifetimeRows.of(
                [tuple(tuple(c[n] for c in block) for block in blocks) for n in range(len(cost[0]))]
            )
            matrices = (cost, *(uses[n][2] for n in spans))
            kinds, (matrix, *held) = self.tables.pairs(value, ports, matrices, rows, columns, trips=trips)
            ends = self._classify(maker, ports[0], rows), self._classify(user, ports[1], columns)
            used = tuple(EdgeUsage(*span, usage) for span, usage in zip(spans.values(), held, strict=True))
            self.edge_cache[key] = Edge(maker, user, *ends, matrix, usages=used, kinds=kinds)
        return self.edge_cache[key].between(maker, user, list(spans.values()))

    def _classify(self, node: int, port: OperandLayouts, lines: LifetimeRows) -> NDArray[np.int32]:
        """Return the class of each strategy: its row of blocks and, where these depend on it, its sharding."""
        life = self.listed[node].lifetime_of
        if life is None:
            return port.classes
        key = id(port), id(life), lines
        if key not in self.classes:
            sizes = [len(port.states) if wide else 1 for wide in lines.by_sharding]
            start, wide = (
                np.cumsum([0, *sizes[:-1]])[list(lines.row_of_lifetime)],
                np.array(lines.by_sharding)[list(lines.row_of_lifetime)],
            )
            self.classes[key] = (start[life] + np.where(wide[life], port.classes, 0)).astype(np.int32)
        return self.classes[key]


def _link_name(one: SharedLifetime | None, other: SharedLifetime | None) -> str:
    first, second = one is not None and one.is_kept, other is not None and other.is_kept
    return "same" if first and second else "barred" if first or second else "free"
