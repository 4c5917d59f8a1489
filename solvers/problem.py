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

from collections.abc import Sequence
from dataclasses import dataclass, field

from solvers.layout import Layout
from solvers.parts import IMPOSSIBLE, Edge, InvalidProblem, Node


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Nodes in the order in which they first live, edges between them, one usage limit (None: no limit)."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    limit: int | None = None
    layout: Layout = field(init=False, repr=False)

    def __init__(self, nodes: Sequence[Node], edges: Sequence[Edge], limit: int | None = None) -> None:
        object.__setattr__(self, "nodes", tuple(nodes))
        object.__setattr__(self, "edges", tuple(edges))
        object.__setattr__(self, "limit", limit)
        self._check()
        object.__setattr__(self, "layout", Layout.of(self.nodes, self.edges))

    def _check(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise InvalidProblem("limit", "problem", self.limit, "None or at least 0")
        largest = sum(int(node.usage.max()) for node in self.nodes)
        largest += sum(int(node.further.usage.max(axis=1).sum()) for node in self.nodes if node.further is not None)
        largest += sum(int(usage.matrix.max()) for edge in self.edges for usage in edge.usages)
        if largest >= IMPOSSIBLE * 100:
            raise InvalidProblem("sum of the largest usages", "problem", largest, f"less than {IMPOSSIBLE * 100}")
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
