"""Random instances in the style of large language models whose layers share decisions: thousands of nodes, of which
presolve leaves few, that about two thousand time steps cut.

A chain of leading ops with skips, each with 16 ways to split its values over the devices. An edge costs what it takes
to bring a value from one way to another: bytes times the mesh axes on which the two differ. A way that computes fast
keeps more memory. Every leading op has followers all over the program, which must be split as it is, each with memory
of its own for a while. Presolve joins them to their leader, which then uses memory over many intervals.
"""

from __future__ import annotations

import numpy as np

from solvers import IMPOSSIBLE, Edge, Node, Problem

# Leading nodes, their followers, and the digits (of the mesh axes, in base 4) of a way: 4**2 ways.
NODES, FOLLOWERS, AXES, DIGITS = 166, 64, 2, 4
# The time steps, and the most that a value lives.
STEPS, LONGEST = 2 * NODES * FOLLOWERS, 4000
# Share of nodes with an edge to the node after the next, and of nodes with one to a node further on.
NEXT_BUT_ONE, SKIPS = 0.7, 0.25
# The limit, from the peaks of each node's leanest ways (0) to those of its cheapest ways (1).
TIGHTNESS = 0.5


def cross_cut(seed: int) -> Problem:
    """Return a problem of NODES leading nodes and their followers."""
    rng = np.random.default_rng(seed)
    ways = np.array([np.unravel_index(way, (DIGITS,) * AXES) for way in range(DIGITS**AXES)])
    differs = (ways[:, None, :] != ways[None, :, :]).astype(np.float64)
    # What a way leaves of the compute, and of the memory: splitting both axes computes least.
    speed = rng.uniform(0.3, 1.0, (AXES, DIGITS))
    compute = np.array([np.prod([speed[axis, digit] for axis, digit in enumerate(way)]) for way in ways])
    leader = np.repeat(np.arange(NODES), 1 + FOLLOWERS)
    size = rng.lognormal(0.0, 0.8, NODES)[leader] * rng.lognormal(0.0, 0.5, leader.size)
    start = rng.integers(0, STEPS - LONGEST, leader.size)
    # Nodes come in the order of their intervals; a leader is the first of its group.
    order, first = np.argsort(start, kind="stable"), dict[int, int]()
    nodes, edges, own = list[Node](), list[Edge](), np.arange(len(ways), dtype=np.int32)
    alike = np.where(np.eye(len(ways), dtype=bool), 0, IMPOSSIBLE)
    for i, k in enumerate(order.tolist()):
        cost = size[k] * compute * rng.uniform(0.6, 1.4, len(ways)) * 1e8
        usage = size[k] * (1.3 - compute) * rng.uniform(0.6, 1.4, len(ways)) * 1e7
        interval = int(start[k]), int(start[k] + rng.integers(1, LONGEST))
        nodes.append(Node(f"n{i}", cost.astype(np.int64), usage.astype(np.int64), interval))
        if first.setdefault(int(leader[k]), i) != i:
            edges.append(Edge(first[int(leader[k])], i, own, own, alike))
    for i, j in _ends(rng):
        price = (differs * rng.uniform(0.2, 1.0, AXES)).sum(axis=2) * rng.uniform(0.7, 1.3, differs.shape[:2])
        scale = min(size[leader == i].sum(), size[leader == j].sum()) * 5e7
        edges.append(Edge(first[i], first[j], own, own, (price * scale).astype(np.int64)))
    low, high = (_peak(nodes, edges, pick) for pick in ("usage", "cost"))
    return Problem(nodes, edges, int(low + TIGHTNESS * (high - low)))


def _ends(rng: np.random.Generator) -> list[tuple[int, int]]:
    ends = {(i, i + 1) for i in range(NODES - 1)}
    ends |= {(i, i + 2) for i in range(NODES - 2) if rng.random() < NEXT_BUT_ONE}
    ends |= {(i, int(rng.integers(i + 3, NODES))) for i in range(NODES - 3) if rng.random() < SKIPS}
    return sorted(ends)


def _peak(nodes: list[Node], edges: list[Edge], pick: str) -> int:
    """Return the peak where every group takes the way of which its nodes use least, or cost least, in sum."""
    group = list(range(len(nodes)))
    for edge in edges:
        if edge.matrix.max() >= IMPOSSIBLE:
            group[edge.target] = edge.source
    total = np.zeros((len(nodes), nodes[0].cost.size), np.int64)
    np.add.at(total, group, np.array([getattr(node, pick) for node in nodes]))
    change = np.zeros(STEPS + 1, np.int64)
    for node, g in zip(nodes, group, strict=True):
        used = int(node.usage[total[g].argmin()])
        change[node.interval[0]] += used
        change[node.interval[1]] -= used
    return int(np.cumsum(change).max())
