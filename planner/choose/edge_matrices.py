"""Cost and usage matrices of edges: what resharding a value costs, and the bytes it holds meanwhile.

A matrix consists of blocks, one for each pair of lifetimes of its ends. A block is named by its content
(`PairKinds.entries`). Lifetimes with equal blocks in a cost matrix and its usages share their rows. A lifetime whose
blocks do not depend on the sharding has one row.

On meshes of many axes an edge has a million pairs of shardings, but these cost and use few different things. So an edge
stores the number of its kind for each pair, and for each kind the cost and the usages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.liveness import Liveness
from planner.choose.operand_layouts import OperandLayouts
from planner.choose.variables import Role, Variable
from planner.ir.execution_order import shrinks
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.all_pairs import AllPairsResharding
from solvers import IMPOSSIBLE, Kinds, number_rows

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


class EdgePairs(NamedTuple):
    """The kind of each pair of classes of an edge, and the entries of its cost and usages by kind."""

    kinds: Kinds
    entries: list[Integers]


@dataclass(frozen=True, eq=False)
class PairKinds:
    """Pairs of states by what they cost and hold: of many pairs few differ.

    of_pair          the kind of each pair `[states, states]`, by source and target
    time             by kind, of the cheapest chain in ps
    through, beside  by kind, bytes that the chain holds at most: with its source, or beside a source that stays
    source, target   by kind, bytes of the source and of the target
    is_same          by kind, whether source and target are equal
    """

    of_pair: Kinds
    time: Integers
    through: Integers
    beside: Integers
    source: Integers
    target: Integers
    is_same: NDArray[np.bool_]

    @classmethod
    def of(cls, table: AllPairsResharding) -> PairKinds:
        """Number the pairs of states of a table."""
        shape, held = table.time.shape, table.bytes
        source, target = np.broadcast_to(held[:, None], shape), np.broadcast_to(held, shape)
        is_same = np.eye(len(held), dtype=bool).ravel()
        features = [each.ravel() for each in (table.time, *table.buffer_peaks(), source, target)]
        kinds, first = number_rows([*features, is_same])
        time, through, beside, source, target = (feature[first] for feature in features)
        return cls(kinds.reshape(shape), time, through, beside, source, target, is_same[first])

    @cached_property
    def entries(self) -> dict[str, Integers]:
        """By name, the entry of each kind of pair of source and target: `time` in ps, or bytes that are held

        source   before the chain, by the source
        through  while the chain runs, if it frees its source
        beside   while the chain runs, in addition to a source that stays
        copy     after the chain, by the target
        changed  as copy, but 0 where source and target are equal

        and for a chain that runs right after the value's op where that frees memory (`shrinks`), else at the read:
        shrinking  while the chain would run early
        smaller    between these two steps, by whichever of source and target takes fewer bytes
        arriving   while the chain would run late

        or 0 throughout (`free`), IMPOSSIBLE throughout (`barred`), or 0 where source and target are equal, and else
        IMPOSSIBLE (`same`).
        """
        is_early = shrinks(self.source, self.target)
        return {
            "time": self.time,
            "through": self.through,
            "beside": self.beside,
            "source": self.source,
            "copy": self.target,
            "changed": np.where(self.is_same, 0, self.target),
            "shrinking": np.where(is_early, self.through, self.source),
            "smaller": np.where(is_early, self.target, self.source),
            "arriving": np.where(is_early, self.target, self.through),
            "free": np.zeros_like(self.time),
            "barred": np.full_like(self.time, IMPOSSIBLE),
            "same": np.where(self.is_same, 0, IMPOSSIBLE),
        }


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
    pair_kinds: dict[int, PairKinds] = field(default_factory=dict)
    edge_pairs: dict[object, EdgePairs] = field(default_factory=dict)
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

    def pairs(
        self,
        value: str,
        ports: tuple[OperandLayouts, OperandLayouts],
        matrices: Sequence[MatrixBlocks],
        rows: LifetimeRows,
        columns: LifetimeRows,
        *,
        trips: int = 1,
    ) -> EdgePairs:
        """Return the pairs `[source classes, target classes]` with the entries of matrices, the first of which is the
        cost. `matrices` are blocks by the lifetimes of both ends.

        Costs are those of so many `trips`; what is impossible once stays as it is.
        """
        table = self.by_value[value]
        distinct = tuple(
            tuple(tuple(blocks[row][column] for blocks in matrices) for column in columns.representatives)
            for row in rows.representatives
        )
        # The numbers of layouts, not their ids: ops with different options may read a value in the same shardings.
        key = (id(table), *map(self._layouts_number, ports), distinct, rows.by_sharding, columns.by_sharding, trips)
        if key not in self.edge_pairs:
            down, across = (self._rows(table, port) for port in ports)
            tall = [down if wide else down[:1] for wide in rows.by_sharding]
            broad = [across if wide else across[:1] for wide in columns.by_sharding]
            if id(table) not in self.pair_kinds:
                self.pair_kinds[id(table)] = PairKinds.of(table)
            pairs = self.pair_kinds[id(table)]
            cells = [[pairs.of_pair[np.ix_(r, c)] for c in broad] for r in tall]
            names = [each for line in distinct for each in line]
            self.edge_pairs[key] = _join_blocks(pairs, cells, names, trips=trips)
        return self.edge_pairs[key]

    def held(self, value: str, port: OperandLayouts) -> Integers:
        """Return the bytes of a value under each strategy; 0 for a strategy without the value."""
        table = self.by_value[value]
        key = ("held", id(table), id(port))
        if key not in self.arrays:
            # The last entry is for the strategy without the value, whose class is the number of states.
            self.arrays[key] = np.append(table.bytes[self._rows(table, port)], 0)[port.classes]
        return self.arrays[key]

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


def _join_blocks(pairs: PairKinds, cells: list[list[Kinds]], names: list[tuple[str, ...]], *, trips: int) -> EdgePairs:
    """Return the pairs of blocks of kinds; `names` has for each block, row by row, its name in every matrix."""
    parts: list[list[Integers]] = [[] for _ in names[0]]
    numbered: list[list[Kinds]] = []
    size, wanted = 0, iter(names)
    for line in cells:
        numbered.append([])
        for block in line:
            flags = np.zeros(pairs.time.size, bool)
            flags[block] = True
            numbered[-1].append((size + np.cumsum(flags) - 1).astype(np.uint32)[block])
            for part, name in zip(parts, next(wanted), strict=True):
                part.append(pairs.entries[name][flags])
            size += int(flags.sum())
    cost, *usages = map(np.concatenate, parts)
    most = IMPOSSIBLE // max(trips, 1)
    cost = cost if trips == 1 else np.where(cost < most, cost * trips, IMPOSSIBLE)
    kinds, first = number_rows([cost, *usages])
    return EdgePairs(kinds[np.block(numbered)], [each[first] for each in (cost, *usages)])
