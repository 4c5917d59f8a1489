"""The problem: assign one strategy to each node, at the least cost, under a usage limit at every time step.

    minimise    sum_i m_i c_i(x_i) + sum_e m_e C_e[s_e(x_source), t_e(x_target)]
    subject to  sum of the usages live at t <= limit          for every time step t

This is a weighted constraint satisfaction problem (PBQP) with time-indexed capacities, in the form of the IOPDDL
contest (https://github.com/google/iopddl) with one addition: edges are indexed by *classes*. The strategies of a node
that an edge cannot tell apart have the same class and share a row of its matrix, so that many edges can share one
matrix. Where many pairs of classes cost and use the same, an edge stores the kind of each pair, and one entry per kind.
A usage belongs to a node or to an edge (a copy that only some pairs of strategies need) and lasts over a half-open
interval of time steps. A multiplicity m multiplies a cost and not the usage. Costs are integers in one unit of the
caller's choice; a cost of IMPOSSIBLE or more forbids the strategy or the pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from solvers.model import IMPOSSIBLE, Edge, InvalidProblem, Node
from solvers.problem_arrays import ProblemArrays


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Problem:
    """Nodes ordered by the start of their live intervals, edges between them, and a usage limit in bytes (None: no
    limit). Constructing one raises InvalidProblem where the parts do not fit together.

    The solver reads `arrays` alone; a problem that was made from arrays has no nodes and edges.
    """

    limit: int | None
    arrays: ProblemArrays = field(repr=False)
    nodes: tuple[Node, ...] = field(repr=False)
    edges: tuple[Edge, ...] = field(repr=False)

    def __init__(self, nodes: Sequence[Node], edges: Sequence[Edge], limit: int | None = None) -> None:
        _check_limit(limit)
        _check_ends(nodes, edges)
        self._set(ProblemArrays.of(nodes, edges), limit, nodes=nodes, edges=edges)

    @staticmethod
    def from_arrays(arrays: ProblemArrays, limit: int | None) -> Problem:
        """Wrap flat arrays that are known to be consistent."""
        _check_limit(limit)
        problem = object.__new__(Problem)
        problem._set(arrays, limit)
        return problem

    def _set(
        self, arrays: ProblemArrays, limit: int | None, *, nodes: Sequence[Node] = (), edges: Sequence[Edge] = ()
    ) -> None:
        usage = arrays.largest_usage()
        if usage >= IMPOSSIBLE * 100:
            raise InvalidProblem("sum of the largest usages", "problem", usage, f"less than {IMPOSSIBLE * 100}")
        # In numpy's integers, products with the limit would wrap around.
        exact = None if limit is None else int(limit)
        parts = {"limit": exact, "arrays": arrays, "nodes": tuple(nodes), "edges": tuple(arrays.share_kinds(edges))}
        for name, value in parts.items():
            object.__setattr__(self, name, value)


def _check_ends(nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
    for edge in edges:
        where = f"edge {edge.source} -> {edge.target}"
        for end, classes in ((edge.source, edge.source_class), (edge.target, edge.target_class)):
            if not 0 <= end < len(nodes):
                raise InvalidProblem("ends", where, end, f"a node index below {len(nodes)}")
            strategies = nodes[end].cost.size
            if classes.size != strategies:
                wanted = f"one for each of the {strategies} strategies of node {nodes[end].name!r}"
                raise InvalidProblem("number of classes", where, classes.size, wanted)


def _check_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int | np.integer) or limit < 0):
        raise InvalidProblem("limit", "problem", limit, "None or an integer of at least 0")
