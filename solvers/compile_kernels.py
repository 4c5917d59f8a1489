"""Compile every kernel of the solver into numba's cache (solvers/jit.py): python -m solvers.compile_kernels.

Kernels are compiled where they are first called, which takes the first plan or solve after an installation seconds.
`make setup` runs this instead. It does nothing where the cache is up to date.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from solvers.ascent_bounding import rate_nodes
from solvers.dual_ascent import DualAscent
from solvers.dual_lns import find_min_usage_assignment
from solvers.mir_cuts import expected_usage
from solvers.model import Edge, Node
from solvers.potentials import FixedPoint
from solvers.presolve import presolve
from solvers.problem import Problem
from solvers.relaxation import Relaxation, RelaxedModel
from solvers.restriction import Restriction
from solvers.solve_state import SolveState
from solvers.tree_lns import TreeLns
from solvers.tree_lns.annealing import anneal

NODES, STRATEGIES, LIMIT = 8, 3, 12


def compile_kernels() -> str:
    """Call every kernel on a small problem with the types of a solve; return the folder of the compiled code."""
    problem = _build_problem()
    presolve(problem)
    state = SolveState(problem, 0.0, None, True, None, None)
    relaxation = Relaxation.for_problem(state, FixedPoint.of(NODES, state.largest_cost))
    relaxation.pass_messages(1, 0.0)
    dual = DualAscent(relaxation)
    dual.begin()
    dual.advance(0.0)
    relaxation.model.potentials({0: 1.0})
    point = np.ones(problem.arrays.cost.size)
    expected_usage(problem.arrays, point)
    rate_nodes(problem.arrays.node_start, point > 0, point, np.ones(point.size, np.int64))
    # Small kinds of pairs, those of most problems, and many.
    for kind in (np.uint8, np.uint16, np.uint32):
        arrays = replace(problem.arrays, pair_kind=problem.arrays.pair_kind.astype(kind))
        restricted = Restriction.identity(Problem.from_arrays(arrays, LIMIT)).restricted_to(point > 0)
        RelaxedModel(state, restricted, relaxation.model.lagrangian.scale).potentials({})
    search = TreeLns(problem, find_min_usage_assignment(problem), 0, lambda: True)
    search.run(find_min_usage_assignment(problem), 1.0, 1)
    search.select_strategies(1)
    return str(anneal.stats.cache_path)


def _build_problem() -> Problem:
    """Return a problem on which every reduction of the presolve finds work: every node is connected to the three next,
    twice to the last of these."""
    strategy = np.arange(STRATEGIES)
    nodes = [Node(f"{i}", strategy * (i + 3) % 5, (strategy + i) % 4, (i, i + 3)) for i in range(NODES)]
    classes = strategy.astype(np.int32)
    edges = [
        Edge(i, j, classes, classes, np.add.outer(i * strategy, j * strategy**2) % 7)
        for i in range(NODES)
        for j in (i + 1, i + 2, i + 3, i + 3)
        if j < NODES
    ]
    return Problem(nodes, edges, LIMIT)


if __name__ == "__main__":
    print(f"The solver is compiled; the code is in {compile_kernels()}")  # noqa: T201
