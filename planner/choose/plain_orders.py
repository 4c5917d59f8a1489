"""Break ties between assignments of equal cost: mesh axes that split one dim come in the mesh's order where they can.

The solver sees no difference between layouts of equal cost, such as a dim split over `dp` then `tp` and over `tp` then
`dp`, but frameworks do: DTensor says the second only by strides. Two changes keep the cost of many assignments: to sort
the axes of every list, and to rename mesh axes that are alike. Each is taken only if the exact cost stays the same and
the memory limit holds, so that neither objective nor proof changes. The result depends on the assignment alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations

import networkx as nx
import numpy as np

import solvers
from planner.choose.axis_units import AxisUnits
from planner.choose.formulate import Formulation
from planner.choose.operand_layouts import OperandLayouts
from planner.choose.variables import Variable
from planner.ir.sharding import Axes, Sharding

Assignment = tuple[int, ...]
Renaming = Axes | None
"""The new number of each mesh axis; None sorts the axes of every list instead."""


def order_axes(
    question: Formulation, assignment: Assignment, *, is_time_up: Callable[[], bool] = lambda: False
) -> Assignment:
    """Return an assignment of the same cost with the fewest variables that split a dim in another order, of those that
    are found before the time is up.
    """
    if is_time_up():
        return assignment
    search = _OrderSearch(question, solvers.evaluate(question.problem, assignment).cost)
    best, fewest = assignment, len(search.unordered(assignment))
    for candidate in search.candidates(assignment) if fewest else ():
        count = len(search.unordered(candidate))
        if count < fewest:
            best, fewest = candidate, count
        if not fewest or is_time_up():
            break
    return best


@dataclass
class _OrderSearch:
    """Assignments of a problem at one cost; `moves` caches strategies, which repeated layers share."""

    question: Formulation
    cost: int
    moves: dict[object, int | None] = field(default_factory=dict)
    positions: dict[int, dict[Sharding, int]] = field(default_factory=dict)

    def unordered(self, assignment: Assignment) -> list[int]:
        """Return the variables under whose strategies some dim is split in another order than the mesh's."""
        return [i for i, strategy in enumerate(assignment) if self._move(i, strategy, None) != strategy]

    def candidates(self, assignment: Assignment) -> Iterator[Assignment]:
        """Yield assignments of equal cost, for every renaming of mesh axes, the present names first."""
        axes = range(len(self.question.model.mesh.axes))
        orders = AxisUnits.of(self.question.model.mesh).any_order
        # At most six renamings: with more axes lists are in the mesh's order anyway (`AxisUnits.any_order`).
        for names in permutations(axes) if orders else ():
            renamed = self._moved(assignment, range(len(assignment)), names)
            if renamed is not None and self._is_equal(renamed):
                yield self._sort(renamed)

    def _sort(self, assignment: Assignment) -> Assignment:
        """Sort the lists of all variables, or else of as many connected groups of unordered variables as allow it."""
        unordered = self.unordered(assignment)
        everywhere = self._moved(assignment, unordered, None)
        if everywhere is not None and self._is_equal(everywhere):
            return everywhere
        for group in nx.connected_components(self._edges.subgraph(unordered)):
            candidate = self._moved(assignment, group, None)
            if candidate is not None and self._is_equal(candidate):
                assignment = candidate
        return assignment

    @cached_property
    def _edges(self) -> nx.Graph[int]:
        graph: nx.Graph[int] = nx.Graph((edge.source, edge.target) for edge in self.question.problem.edges)
        graph.add_nodes_from(range(len(self.question.variables)))
        return graph

    def _is_equal(self, assignment: Assignment) -> bool:
        evaluation = solvers.evaluate(self.question.problem, assignment)
        return evaluation.feasible and evaluation.cost == self.cost

    def _moved(self, assignment: Assignment, nodes: Iterable[int], names: Renaming) -> Assignment | None:
        """Return the assignment with these variables under new names of axes; None where one has no such strategy."""
        moved = list(assignment)
        for node in nodes:
            strategy = self._move(node, assignment[node], names)
            if strategy is None:
                return None
            moved[node] = strategy
        return tuple(moved)

    def _move(self, node: int, strategy: int, names: Renaming) -> int | None:
        """Return the strategy of a variable whose layouts are those of another one under new names of axes."""
        variable = self.question.variables[node]
        ports = (*variable.results, *variable.operands)
        # Variables that share these arrays are of one kind: the answer is the same for all of them.
        key = (*map(id, (variable.costs, *ports)), strategy, names)
        if key not in self.moves:
            self.moves[key] = self._find(variable, ports, strategy, names=names)
        return self.moves[key]

    def _find(
        self, variable: Variable, ports: Sequence[OperandLayouts], strategy: int, *, names: Renaming
    ) -> int | None:
        fits = np.ones(len(variable.costs), bool)
        if variable.lifetime_of is not None:
            fits &= variable.lifetime_of == variable.lifetime_of[strategy]
        for port in ports:
            present = int(port.classes[strategy])
            if present < len(port.states):
                fits &= port.classes == self._position(port, _rename(port.states[present], names))
            else:
                # The class beyond the last state means that there is no value: it has no axes to rename.
                fits &= port.classes == present
        return int(fits.argmax()) if fits.any() else None

    def _position(self, port: OperandLayouts, state: Sharding) -> int:
        if id(port) not in self.positions:
            self.positions[id(port)] = {each: n for n, each in enumerate(port.states)}
        return self.positions[id(port)].get(state, -1)


def _rename(sharding: Sharding, names: Renaming) -> Sharding:
    """Return the sharding with its axes sorted, or each axis replaced by its new name."""
    if names is None:
        return replace(sharding, split_axes=tuple(tuple(sorted(axes)) for axes in sharding.split_axes))
    split = tuple(tuple(names[axis] for axis in axes) for axes in sharding.split_axes)
    return replace(sharding, split_axes=split, partial=tuple(names[axis] for axis in sharding.partial))
