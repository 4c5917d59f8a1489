"""Random instances that resemble every class of the public ones, each with an optimum that is known by construction.

An assignment is planted: reduced costs >= 0 are drawn, with 0 at the planted strategies and pairs, so that it is the
cheapest. Then the costs are disguised without changing any comparison: each edge moves a random vector of cost to
either end (a message), and every strategy is charged for the bytes that it does *not* use, at hidden prices for a few
time steps. At those time steps the planted assignment fills the limit to the last byte (a node without a choice pads
it), so by Lagrangian duality it stays optimal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers import IMPOSSIBLE, Edge, Node, Problem, evaluate, usage_profile

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """layers of width nodes; skips: edges across layers, hubs: nodes joined to many; alone: nodes without edges;
    most: strategies of a node; forbidden: share of impossible pairs; priced: moments at which the limit binds."""

    layers: int
    width: int
    skips: int = 0
    hubs: int = 0
    alone: int = 0
    most: int = 12
    forbidden: float = 0.0
    priced: int = 3


CLASSES: dict[str, Shape] = {
    "graph network": Shape(60, 40, skips=200, hubs=8, alone=500, most=10, forbidden=0.1),
    "U-Net": Shape(300, 12, skips=900, hubs=2, alone=2000, most=30, priced=8),
    "diffusion": Shape(200, 16, skips=1500, hubs=6, alone=1500, most=20, forbidden=0.02, priced=5),
    "Gemma 1": Shape(400, 8, skips=1200, hubs=3, alone=8000, most=24, priced=4),
    "Gemma 2": Shape(700, 8, skips=2500, hubs=4, alone=17000, most=16, forbidden=0.05, priced=6),
    "transformer inference": Shape(80, 10, skips=150, hubs=2, alone=20, most=39, priced=2),
}


def layered(seed: int, layers: int, width: int) -> Problem:
    """Return a small planted problem."""
    return planted(seed, Shape(layers, width, skips=layers, hubs=1, alone=width))[0]


def planted(seed: int, shape: Shape) -> tuple[Problem, int]:
    """Return a problem of this shape and its optimal cost."""
    rng = np.random.default_rng(seed)
    joined = shape.layers * shape.width
    count, moments = joined + shape.alone, 2 * shape.layers
    sizes = rng.integers(1, shape.most + 1, count)
    answer = np.array([int(rng.integers(k)) for k in sizes])
    usages = [_usage(rng, int(k)) for k in sizes]
    spans = [_interval(rng, i, shape, moments) for i in range(count)]
    costs = [_reduced(rng, int(k), int(x)) for k, x in zip(sizes, answer, strict=True)]
    edges = [_edge(rng, i, j, sizes, answer, shape.forbidden) for i, j in _ends(rng, shape, joined)]
    nodes = [Node(f"n{i}", *parts) for i, parts in enumerate(zip(costs, usages, spans, strict=True))]
    return _posed(rng, nodes, edges, answer, shape.priced)


def twin(problem: Problem, seed: int, priced: int = 6) -> tuple[Problem, int]:
    """A problem of the same nodes, edges, usages and infinities whose least cost is known.

    Planted is a random choice that keeps all infinities; reduced costs are what is dearer or cheaper than there.
    """
    rng = np.random.default_rng(seed)
    answer = _possible(rng, problem)
    nodes = [
        Node(n.name, _away(n.cost, n.cost[x]), n.usage, n.interval)
        for n, x in zip(problem.nodes, answer.tolist(), strict=True)
    ]
    edges = [
        Edge(e.source, e.target, e.source_class, e.target_class, _away(e.matrix, e.matrix[pair]))
        for e, pair in zip(problem.edges, _pairs(problem, answer), strict=True)
    ]
    return _posed(rng, nodes, edges, answer, priced)


def _away(cost: Integers, planted: np.int64) -> Integers:
    return np.where(cost < IMPOSSIBLE, np.abs(cost - planted), IMPOSSIBLE)


def _pairs(problem: Problem, answer: Integers) -> list[tuple[int, int]]:
    return [
        (int(e.source_class[answer[e.source]]), int(e.target_class[answer[e.target]])) for e in problem.edges
    ]  # fmt: skip


def _possible(rng: np.random.Generator, problem: Problem) -> Integers:
    """Return a possible assignment, node by node: half the time the strategy of least usage, else a random one."""
    before: list[list[Edge]] = [[] for _ in problem.nodes]
    for edge in problem.edges:
        before[max(edge.source, edge.target)].append(edge)
    answer = np.zeros(len(problem.nodes), np.int64)
    for i, node in enumerate(problem.nodes):
        possible = node.cost < IMPOSSIBLE
        for e in before[i]:
            if e.target == i:
                row = e.matrix[e.source_class[answer[e.source]], e.target_class]
            else:
                row = e.matrix[e.source_class, e.target_class[answer[e.target]]]
            possible &= row < IMPOSSIBLE
        usage = np.where(possible, node.usage, np.iinfo(np.int64).max)
        answer[i] = usage.argmin() if rng.random() < 0.5 else rng.choice(np.flatnonzero(possible))
    return answer


def _posed(
    rng: np.random.Generator, nodes: list[Node], edges: list[Edge], answer: Integers, priced: int
) -> tuple[Problem, int]:
    """Return the disguised problem, with a limit that the planted assignment fills at some time steps, and its cost."""
    costs, edges = _disguised(rng, [node.cost for node in nodes], edges)
    forbidden = [node.cost >= IMPOSSIBLE for node in nodes]
    plain = Problem([
        Node(n.name, np.where(never, IMPOSSIBLE, c - c[~never].min()), n.usage, n.interval)
        for n, c, never in zip(nodes, costs, forbidden, strict=True)
    ], [])  # fmt: skip
    load = usage_profile(plain, answer)
    limit, prices = int(load.max()), np.zeros(load.size)
    prices[rng.choice(load.size, priced, replace=False)] = rng.integers(1, 4, priced)
    charged = [_charged(node, prices) for node in plain.nodes]
    charged += [
        Node(f"pad{t}", np.zeros(1, np.int64), np.array([limit - int(load[t])]), (int(t), int(t) + 1))
        for t in np.flatnonzero(prices)
    ]
    problem = Problem(charged, edges, limit)
    return problem, evaluate(problem, np.append(answer, np.zeros(priced, np.int64))).cost


def _usage(rng: np.random.Generator, k: int) -> Integers:
    whole = int(rng.choice([64, 512, 4096, 32768]) * rng.integers(1, 9))
    return np.array([whole // int(rng.choice([1, 2, 4, 8, 16, 32])) for _ in range(k)], np.int64)


def _interval(rng: np.random.Generator, i: int, shape: Shape, moments: int) -> tuple[int, int]:
    layer = i // shape.width if i < shape.layers * shape.width else int(rng.integers(shape.layers))
    long = rng.random() < 0.3
    return layer, moments - layer if long else min(layer + int(rng.integers(1, 6)), moments)


def _reduced(rng: np.random.Generator, k: int, x: int) -> Integers:
    """Return random reduced costs >= 0: 0 at the planted strategy, and often elsewhere (ties)."""
    costs = np.where(rng.random(k) < 0.3, 0, rng.integers(0, 10 ** int(rng.integers(2, 6)), k))
    costs[x] = 0
    return costs.astype(np.int64)


def _ends(rng: np.random.Generator, shape: Shape, joined: int) -> list[tuple[int, int]]:
    pairs = {
        (i - shape.width + int(rng.integers(-1, 2)) * (i % shape.width > 0), i) for i in range(shape.width, joined)
    }
    pairs |= {(i - 1, i) for i in range(1, joined) if rng.random() < 0.3}
    for _ in range(shape.skips):
        i, j = np.sort(rng.choice(joined, 2, replace=False)).tolist()
        pairs.add((i, j))
    for hub in rng.choice(joined, shape.hubs, replace=False).tolist():
        pairs |= {
            (min(hub, i), max(hub, i)) for i in rng.choice(joined, joined // 20, replace=False).tolist() if i != hub
        }
    return sorted((i, j) for i, j in pairs if 0 <= i < j)


def _edge(rng: np.random.Generator, i: int, j: int, sizes: Integers, answer: Integers, forbidden: float) -> Edge:
    shape = (int(sizes[i]), int(sizes[j]))
    costs = rng.integers(0, 10 ** int(rng.integers(2, 7)), shape)
    costs[rng.random(shape) < 0.3] = 0
    costs[rng.random(shape) < forbidden] = IMPOSSIBLE
    costs[answer[i], answer[j]] = 0
    return Edge(i, j, np.arange(shape[0], dtype=np.int32), np.arange(shape[1], dtype=np.int32), costs)


def _disguised(rng: np.random.Generator, costs: list[Integers], edges: list[Edge]) -> tuple[list[Integers], list[Edge]]:
    """Move random vectors from nodes to edges, which changes the cost of every assignment by the same constant."""
    costs, turned = [cost.copy() for cost in costs], []
    for edge in edges:
        reach = 10 ** int(rng.integers(2, 6))
        rows, columns = rng.integers(0, reach, edge.matrix.shape[0]), rng.integers(0, reach, edge.matrix.shape[1])
        costs[edge.source] -= rows
        costs[edge.target] -= columns
        finite = edge.matrix < IMPOSSIBLE
        moved = np.where(finite, edge.matrix + rows[:, None] + columns, IMPOSSIBLE)
        turned.append(Edge(edge.source, edge.target, edge.source_class, edge.target_class, moved))
    return costs, turned


def _charged(node: Node, prices: NDArray[np.float64]) -> Node:
    price = int(prices[node.interval[0] : node.interval[1]].sum())
    cost = node.cost + price * (node.usage.max() - node.usage)
    return Node(node.name, np.minimum(cost, IMPOSSIBLE), node.usage, node.interval)
