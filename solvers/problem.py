"""The choice problem: one strategy per node, at the least cost, under a usage limit at every moment.

    minimise    sum_i m_i c_i(x_i) + sum_e m_e C_e[s_e(x_source), t_e(x_target)]
    subject to  sum of the usages live at t <= limit          for every moment t

The form is that of the IOPDDL contest (https://github.com/google/iopddl); an edge is indexed by *classes*: two
strategies of a node that an edge cannot tell apart share a row of its matrix, so a matrix belongs to a
kind of value and is shared by many edges. A usage sits on a node or on an edge (a copy that only some pairs
need), always over half-open intervals of moments. A multiplicity counts a cost several times and leaves
usage as it is. Costs are integers of any one unit; a cost of IMPOSSIBLE or more forbids the strategy or the pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from solvers.model import IMPOSSIBLE, Edge, Integers, InvalidProblem, Node
from solvers.problem_arrays import ProblemArrays


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Problem:
    """Nodes in the order in which they first live, edges between them, one usage limit (None: no limit)."""

    limit: int | None
    arrays: ProblemArrays = field(repr=False)
    _parts: list[tuple[tuple[Node, ...], tuple[Edge, ...]]] = field(repr=False)

    def __init__(self, nodes: Sequence[Node], edges: Sequence[Edge], limit: int | None = None) -> None:
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "_parts", [(tuple(nodes), tuple(edges))])
        self._check()
        object.__setattr__(self, "arrays", ProblemArrays.of(self.nodes, self.edges))

    @staticmethod
    def from_arrays(arrays: ProblemArrays, limit: int | None) -> Problem:
        """Of flat arrays that hold a sound problem: its parts are made (and checked) once they are asked for."""
        if arrays.usage.size:
            most = np.maximum.reduceat(arrays.usage, arrays.node_start[:-1])
            _check_largest(int(most.sum(dtype=object)))
        problem = object.__new__(Problem)
        object.__setattr__(problem, "limit", limit)
        object.__setattr__(problem, "arrays", arrays)
        object.__setattr__(problem, "_parts", [])
        return problem

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The choices."""
        if not self._parts:
            self._parts.append(self.arrays.parts())
        return self._parts[0][0]

    @property
    def edges(self) -> tuple[Edge, ...]:
        """What pairs of choices cost."""
        if not self._parts:
            self._parts.append(self.arrays.parts())
        return self._parts[0][1]

    def _check(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise InvalidProblem("limit", "problem", self.limit, "None or at least 0")
        largest = sum(
            int(node.more_usage.usage.max(axis=1).sum()) for node in self.nodes if node.more_usage is not None
        )
        largest += _largest([node.usage for node in self.nodes])
        _check_largest(largest + _largest([usage.matrix for edge in self.edges for usage in edge.usages]))
        count = len(self.nodes)
        for edge in self.edges:
            where = f"edge {edge.source} -> {edge.target}"
            for end, classes in ((edge.source, edge.source_class), (edge.target, edge.target_class)):
                if not 0 <= end < count:
                    raise InvalidProblem("ends", where, end, f"a node index below {count}")
                strategies = self.nodes[end].cost.size
                if classes.size != strategies:
                    wanted = f"one for each of the {strategies} strategies of node {self.nodes[end].name!r}"
                    raise InvalidProblem("number of classes", where, classes.size, wanted)


def _largest(arrays: Sequence[Integers]) -> int:
    """The sum of their largest entries; many may be one and the same array."""
    times = Counter(map(id, arrays))
    return sum(int(each.max()) * times[number] for number, each in {id(each): each for each in arrays}.items())


def _check_largest(usage: int) -> None:
    if usage >= IMPOSSIBLE * 100:
        raise InvalidProblem("sum of the largest usages", "problem", usage, f"less than {IMPOSSIBLE * 100}")
