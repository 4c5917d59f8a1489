"""Cost and usage matrices of edges: what resharding a value costs, and the bytes it holds meanwhile.

A matrix consists of blocks, one for each pair of lifetimes of its ends. A block is named by its content: a name that
`AllPairsResharding.cost_matrix` takes, or
    free    0 throughout     barred  forbidden     same    0 between equal shardings, forbidden otherwise
Lifetimes with equal blocks in a cost matrix and its usages share their rows. A lifetime whose blocks do not depend on
the sharding has one row. Equal matrices are one array.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.liveness import Liveness
from planner.choose.operand_layouts import OperandLayouts
from planner.choose.variables import Role, Variable
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.all_pairs import AllPairsResharding
from solvers import IMPOSSIBLE

Integers = NDArray[np.int64]
MatrixBlocks = tuple[tuple[str, ...], ...]
EVEN = ("free", "barred")


class LifetimeRows(NamedTuple):
    """Groups of lifetimes with equal rows (or columns) of blocks.

    row_of_lifetime  the group of each lifetime
    representatives  a lifetime of each group
    by_sharding      whether the blocks of a group depend on the sharding
    """

    row_of_lifetime: tuple[int, ...]
    representatives: tuple[int, ...]
    by_sharding: tuple[bool, ...]

    @classmethod
    def of(cls, seen: Sequence[tuple[tuple[str, ...], ...]]) -> LifetimeRows:
        """Group lifetimes by their rows of blocks in all matrices of an edge."""
        numbers: dict[tuple[tuple[str, ...], ...], int] = {}
        of_life = tuple(numbers.setdefault(line, len(numbers)) for line in seen)
        wide = tuple(any(name not in EVEN for names in line for name in names) for line in numbers)
        return cls(of_life, tuple(map(of_life.index, range(len(numbers)))), wide)


@dataclass
class EdgeMatrices:
    """Resharding tables of all values. Values of equal type share them, and a clone those of its original.

    on_built  called with the number of values whose table is there
    """

    liveness: Liveness
    model: CostModel
    listed: list[Variable]
    units: AxisUnits
    on_built: Callable[[int], None]
    by_value: dict[str, AllPairsResharding] = field(default_factory=dict)
    distances: dict[object, AllPairsResharding] = field(default_factory=dict)
    arrays: dict[object, Integers] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    by_states: dict[tuple[Sharding, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, first = self.liveness.with_clones.graph, self.liveness.with_clones.clone_of
        results = {v.name: v.results for v in self.listed if v.role is Role.INPUT}
        results |= {v.name: v.results for v in self.listed if v.role is Role.OP}
        ports = {entry.id: results[entry.id][0] for entry in graph.inputs}
        windows: dict[str, set[Sharding]] = defaultdict(set)
        by_op = {v.name: v for v in self.listed if v.role is Role.OP}
        for op in graph.ops:
            ports |= dict(zip(op.values, results[op.id], strict=True))
            for operand in op.rule.windows:
                value = op.inputs[operand]
                windows[first.get(value, value)].update(by_op[op.id].operands[operand].states)
        # A value may be partial only as its producer leaves it. The sum is always allowed, so that most values of one
        # type share a table.
        reduced = {
            port: frozenset({Reduction.SUM, *(state.reduction for state in port.states)})
            for port in dict.fromkeys(ports.values())
        }
        for done, (value, kind) in enumerate(graph.types.items()):
            tick = partial(self.on_built, done)
            tick()
            reductions = reduced[ports[value]]
            read = tuple(sorted(windows[first.get(value, value)]))
            # Shardings with halos exist only where a window reads them: each set of them needs a table of its own.
            key = (kind, reductions, read)
            if key not in self.distances:
                self.distances[key] = AllPairsResharding.of(
                    kind, reductions, self.model, read, units=self.units, tick=tick
                )
            self.by_value[value] = self.distances[key]

    def matrix(
        self,
        value: str,
        ports: tuple[OperandLayouts, OperandLayouts],
        blocks: MatrixBlocks,
        rows: LifetimeRows,
        columns: LifetimeRows,
        *,
        trips: int = 1,
    ) -> Integers:
        """Return a matrix `[source classes, target classes]` with `blocks` by the lifetimes of both ends.

        Its numbers are those of so many `trips`; what is impossible once stays as it is.
        """
        table = self.by_value[value]
        distinct = tuple(
            tuple(blocks[row][column] for column in columns.representatives) for row in rows.representatives
        )
        # The numbers of layouts, not their ids: ops with different options may read a value in the same shardings.
        key = (id(table), *map(self._layouts_number, ports), distinct, rows.by_sharding, columns.by_sharding, trips)
        if key not in self.arrays:
            down, across = (self._rows(table, port) for port in ports)
            tall = [down if wide else down[:1] for wide in rows.by_sharding]
            broad = [across if wide else across[:1] for wide in columns.by_sharding]
            parts = [
                [self._block(table, r, c, name) for c, name in zip(broad, line, strict=True)]
                for r, line in zip(tall, distinct, strict=True)
            ]
            whole = np.block(parts) if len(parts) > 1 or len(parts[0]) > 1 else parts[0][0]
            most = IMPOSSIBLE // max(trips, 1)
            scaled = whole if trips == 1 else np.where(whole < most, whole * trips, IMPOSSIBLE)
            self.arrays[key] = np.ascontiguousarray(scaled)
        return self.arrays[key]

    def held(self, value: str, port: OperandLayouts) -> Integers:
        """Return the bytes of a value under each strategy; 0 for a strategy without the value."""
        table = self.by_value[value]
        key = ("held", id(table), id(port))
        if key not in self.arrays:
            # The last entry is for the strategy without the value, whose class is the number of states.
            self.arrays[key] = np.append(table.bytes[self._rows(table, port)], 0)[port.classes]
        return self.arrays[key]

    def _block(self, table: AllPairsResharding, rows: Integers, columns: Integers, what: str) -> Integers:
        if what in EVEN:
            return np.full((len(rows), len(columns)), 0 if what == "free" else IMPOSSIBLE, np.int64)
        if what == "same":
            return np.where(rows[:, None] == columns[None, :], 0, IMPOSSIBLE)
        return table.cost_matrix(what)[np.ix_(rows, columns)]

    def _layouts_number(self, port: OperandLayouts) -> int:
        """Return a number that is equal for layouts with equal states, whose matrices are the same."""
        if id(port) not in self.numbers:
            self.numbers[id(port)] = self.by_states.setdefault(port.states, len(self.by_states))
        return self.numbers[id(port)]

    def _rows(self, table: AllPairsResharding, port: OperandLayouts) -> Integers:
        key = (id(table), self._layouts_number(port))
        if key not in self.arrays:
            self.arrays[key] = np.array([table.index[state] for state in port.states])
        return self.arrays[key]
