"""Tiny random solver problems with every awkward feature, small enough for the exhaustive oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from solvers import IMPOSSIBLE, Edge, EdgeUsage, Evaluation, Node, Problem
from tests.testing.exhaustive import find_cheapest

Best = tuple[tuple[int, ...], Evaluation]


@cache
def with_best(make: Callable[[int], Problem], seed: int) -> tuple[Problem, Best | None]:
    """Return a problem and its cheapest assignment by enumeration, cached because many tests need it."""
    problem = make(seed)
    return problem, find_cheapest(problem)


def tiny(seed: int) -> Problem:
    """Return up to six nodes of up to four strategies with ties, forbidden pairs, unused memory and parallel edges."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    high = int(rng.choice([2, 10, 10**6, 10**12]))
    moments = int(rng.integers(0, 6))
    nodes = [_node(rng, i, high, moments) for i in range(count)]
    shared = _matrix(rng, high, (3, 3))
    edges = [_edge(rng, nodes, high, moments, shared) for _ in range(int(rng.integers(0, 9)))] if count > 1 else []
    return Problem(nodes, edges, _limit(rng, nodes))


def dear(seed: int) -> Problem:
    """Return `tiny`'s problem with costs so large that two permitted ones may add up to more than IMPOSSIBLE."""
    problem = tiny(seed)
    parts = [*(node.cost * node.multiplicity for node in problem.nodes)]
    parts += [edge.matrix * edge.multiplicity for edge in problem.edges]
    largest = max((int(cost[cost < IMPOSSIBLE].max(initial=0)) for cost in parts), default=0)
    return scaled(problem, (IMPOSSIBLE - 1) // max(largest, 1))


def scaled(problem: Problem, factor: int) -> Problem:
    """Return the problem with every permitted cost times `factor`."""

    def scale(cost: np.ndarray) -> np.ndarray:
        return np.where(cost < IMPOSSIBLE, cost * np.where(cost < IMPOSSIBLE, factor, 0), IMPOSSIBLE)

    nodes = [replace(node, cost=scale(node.cost)) for node in problem.nodes]
    return Problem(nodes, [replace(edge, matrix=scale(edge.matrix)) for edge in problem.edges], problem.limit)


def _interval(rng: np.random.Generator, moments: int) -> tuple[int, int]:
    start, stop = sorted(rng.integers(0, moments + 1, 2).tolist())
    return start, stop


def _node(rng: np.random.Generator, i: int, high: int, moments: int) -> Node:
    k = int(rng.integers(1, 5))
    cost = rng.integers(0, high, k)
    if rng.random() < 0.1:
        cost[rng.integers(k)] = IMPOSSIBLE
    usage = rng.integers(0, int(rng.choice([1, 5, 1000])), k)
    return Node(f"n{i}", cost, usage, _interval(rng, moments), int(rng.choice([1, 1, 3])))


def _matrix(rng: np.random.Generator, high: int, shape: tuple[int, int]) -> np.ndarray:
    matrix = rng.integers(0, high, shape)
    forbidden = float(rng.choice([0.0, 0.0, 0.2, 0.6]))
    return np.where(rng.random(shape) < forbidden, IMPOSSIBLE + int(rng.integers(0, 2)), matrix)


def _edge(rng: np.random.Generator, nodes: list[Node], high: int, moments: int, shared: np.ndarray) -> Edge:
    source, target = rng.choice(len(nodes), 2, replace=False).tolist()
    matrix = shared if rng.random() < 0.4 else _matrix(rng, high, (int(rng.integers(1, 4)), int(rng.integers(1, 4))))
    usages = tuple(
        EdgeUsage(*_interval(rng, moments), rng.integers(0, 6, matrix.shape))
        for _ in range(int(rng.integers(0, 3)) // 2)
    )
    return Edge(
        source,
        target,
        rng.integers(0, matrix.shape[0], nodes[source].cost.size).astype(np.int32),
        rng.integers(0, matrix.shape[1], nodes[target].cost.size).astype(np.int32),
        matrix,
        int(rng.choice([1, 1, 2])),
        usages,
    )


def _limit(rng: np.random.Generator, nodes: list[Node]) -> int | None:
    if rng.random() < 0.3:
        return None
    most = sum(int(node.usage.max()) for node in nodes)
    return int(rng.integers(0, most + 2))


def tiny_nodes(seed: int) -> Problem:
    """Return the tiny problem without usage on edges, which presolve leaves alone."""
    problem = tiny(seed)
    return Problem(problem.nodes, [replace(edge, usages=()) for edge in problem.edges], problem.limit)


def tiny_public(seed: int) -> Problem:
    """Return a problem like the contest's: edge matrices over all strategies, tight limits, few distinct numbers."""
    rng = np.random.default_rng([seed, 1])
    moments, ties = int(rng.integers(1, 8)), int(rng.choice([2, 4, 100]))
    nodes = [_node(rng, i, ties, moments) for i in range(int(rng.integers(2, 8)))]
    nodes = [Node(n.name, n.cost, n.usage * (rng.random() < 0.6), n.interval) for n in nodes]
    edges = []
    for _ in range(int(rng.integers(1, 9))):
        source, target = rng.choice(len(nodes), 2, replace=False).tolist()
        shape = (nodes[source].cost.size, nodes[target].cost.size)
        edges.append(_whole(source, target, _structured(rng, ties, shape)))
    return Problem(nodes, edges, _limit(rng, nodes))


def contracting(seed: int) -> Problem:
    """Return a random tree of edges on which one end determines the other; nodes have usage in several intervals."""
    rng = np.random.default_rng([seed, 2])
    moments, k = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    nodes = [
        Node(f"n{i}", rng.integers(0, 9, k), rng.integers(0, 4, k), _interval(rng, moments))
        for i in range(int(rng.integers(2, 7)))
    ]
    edges = []
    for target in range(1, len(nodes)):
        matrix = np.full((k, k), IMPOSSIBLE)
        matrix[np.arange(k), rng.permutation(k)] = rng.integers(0, 9, k)
        edges.append(_whole(int(rng.integers(target)), target, matrix))
    return Problem(nodes, edges, _limit(rng, nodes))


def _whole(source: int, target: int, matrix: np.ndarray) -> Edge:
    height, width = matrix.shape
    return Edge(source, target, np.arange(height, dtype=np.int32), np.arange(width, dtype=np.int32), matrix)


def _structured(rng: np.random.Generator, high: int, shape: tuple[int, int]) -> np.ndarray:
    """Return a random matrix: unstructured, additive, with one permitted column per row, or with equal rows."""
    kind = int(rng.integers(4))
    if kind == 1:
        return rng.integers(0, high, (shape[0], 1)) + rng.integers(0, high, (1, shape[1]))
    matrix = _matrix(rng, high, shape)
    if kind == 2:
        allowed = rng.integers(0, shape[1], shape[0])
        return np.where(np.arange(shape[1]) == allowed[:, None], matrix, IMPOSSIBLE)
    return matrix[rng.integers(0, shape[0], shape[0])] if kind == 3 else matrix


def public_document(seed: int) -> dict[str, Any]:
    """Return a document in the contest's format with infinities, empty intervals and parallel edges."""
    rng = np.random.default_rng([seed, 3])
    sizes = rng.integers(1, 5, int(rng.integers(2, 8))).tolist()
    ends = [rng.choice(len(sizes), 2, replace=False).tolist() for _ in range(int(rng.integers(0, 9)))]
    return {
        "problem": {
            "nodes": {
                "intervals": [list(_interval(rng, 6)) for _ in sizes],
                "costs": [_infinite_at_times(rng, k) for k in sizes],
                "usages": [rng.integers(0, 10, k).tolist() for k in sizes],
            },
            "edges": {"nodes": ends, "costs": [_infinite_at_times(rng, sizes[i] * sizes[j]) for i, j in ends]},
            "usage_limit": int(rng.integers(0, 30)),
        }
    }


def _infinite_at_times(rng: np.random.Generator, count: int) -> list[int]:
    return [10**18 if rng.random() < 0.1 else int(rng.integers(0, 10**6)) for _ in range(count)]


def grid(side: int, strategies: int, seed: int) -> Problem:
    """Return a square grid with random costs, whose linear relaxation is weak and whose MIPs take long."""
    rng = np.random.default_rng(seed)
    own = np.arange(strategies, dtype=np.int32)
    none = np.zeros(strategies, np.int64)
    nodes = [Node(f"n{i}", rng.integers(0, 10**6, strategies), none, (i, i + 1)) for i in range(side * side)]
    pairs = [(i, i + 1) for i in range(side * side) if (i + 1) % side] + [
        (i, i + side) for i in range(side * (side - 1))
    ]
    return Problem(nodes, [Edge(i, j, own, own, rng.integers(0, 10**6, (strategies, strategies))) for i, j in pairs])
