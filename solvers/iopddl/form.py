"""From the contest's document to a problem, and every way in which a document can be wrong.

    {"problem": {"nodes": {"intervals": [[0, 4], ...], "costs": [[7, 0], ...], "usages": [[1, 2], ...]},
                 "edges": {"nodes": [[0, 1], ...], "costs": [[0, 1, 1, 0], ...]},
                 "usage_limit": 12}}

(https://github.com/google/iopddl; a document without usage_limit has none, other keys are left alone.) Intervals
are half open; an edge's costs run over its first node's strategies, within each over its second's. A cost of
10**18 or more is the contest's infinity: it becomes IMPOSSIBLE. Nothing between the two is allowed.
Equal matrices are kept once, which is what keeps everything after this small.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE, InvalidProblem
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays

Integers = NDArray[np.int64]

INFINITE_COST = 10**18
MAX_NODES, MAX_MOMENTS, MAX_USAGE = 1 << 20, 1 << 24, 10**16
COSTS = f"a whole number from 0 to {IMPOSSIBLE - 1}, or from {INFINITE_COST} to {(1 << 63) - 1} for infinity"


@dataclass(frozen=True, slots=True, eq=False)
class NestedLists:
    """Rows of whole numbers laid end to end: row i is flat[start[i]:start[i + 1]]."""

    path: str
    flat: Integers
    start: Integers

    @staticmethod
    def of(rows: list[Any], path: str, wanted: str) -> NestedLists:
        """Of a list of lists; raises InvalidProblem at the first thing that is neither."""
        if any(type(row) is not list for row in rows):
            i = next(i for i, row in enumerate(rows) if type(row) is not list)
            raise InvalidProblem("row", f"{path}[{i}]", reprlib.repr(rows[i]), "a list")
        start = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=start[1:])
        if set(map(type, chain.from_iterable(rows))) <= {int}:
            try:
                return NestedLists(path, np.fromiter(chain.from_iterable(rows), np.int64, int(start[-1])), start)
            except OverflowError:
                pass
        at, value = next(
            (at, value)
            for at, value in enumerate(chain.from_iterable(rows))
            if type(value) is not int or abs(value) >= 1 << 63
        )
        raise InvalidProblem("number", _element_path(path, start, at), reprlib.repr(value), wanted)

    @property
    def sizes(self) -> Integers:
        """The length of each row."""
        return np.diff(self.start)

    def require(self, good: NDArray[np.bool_], wanted: str) -> None:
        """Every number good, or an error at the first that is not."""
        if not good.all():
            at = int(np.argmin(good))
            raise InvalidProblem("number", _element_path(self.path, self.start, at), int(self.flat[at]), wanted)

    def require_sizes(self, wanted: Integers, meaning: str) -> None:
        """Every row of the size wanted, or an error at the first that is not."""
        wrong = np.flatnonzero(self.sizes != wanted)
        if wrong.size:
            i = int(wrong[0])
            raise InvalidProblem("length", f"{self.path}[{i}]", int(self.sizes[i]), f"{int(wanted[i])}, {meaning}")


def _element_path(path: str, start: Integers, at: int) -> str:
    i = int(np.searchsorted(start, at, side="right")) - 1
    return f"{path}[{i}][{at - int(start[i])}]"


def _require_member(owner: Any, path: str, key: str, *, kind: type) -> Any:
    if type(owner) is not dict:
        raise InvalidProblem("value", path or "document", reprlib.repr(owner), "an object")
    where = f"{path}.{key}" if path else key
    if key not in owner:
        raise InvalidProblem("key", where, "nothing", f"{'an object' if kind is dict else 'a list'}")
    if type(owner[key]) is not kind:
        raise InvalidProblem("value", where, reprlib.repr(owner[key]), "an object" if kind is dict else "a list")
    return owner[key]


def build_problem(document: Any) -> Problem:
    """The problem a parsed document states. Raises InvalidProblem with the path, as in nodes.costs[12][3]."""
    stated = _require_member(document, "", "problem", kind=dict)
    nodes, edges = _require_member(stated, "", "nodes", kind=dict), _require_member(stated, "", "edges", kind=dict)
    stated_nodes = _read_nodes(nodes)
    return Problem.from_arrays(
        _build_arrays(stated_nodes, _read_edges(edges, stated_nodes[1].sizes)), _read_limit(stated)
    )


def _read_limit(stated: dict[str, Any]) -> int | None:
    limit = stated.get("usage_limit")
    if limit is not None and (type(limit) is not int or not 0 <= limit < 1 << 63):
        raise InvalidProblem("value", "usage_limit", reprlib.repr(limit), f"a whole number from 0 to {(1 << 63) - 1}")
    return limit


def _read_nodes(stated: dict[str, Any]) -> tuple[NestedLists, NestedLists, NestedLists]:
    """Intervals, costs, usages."""
    rows = {key: _require_member(stated, "nodes", key, kind=list) for key in ("intervals", "costs", "usages")}
    count = len(rows["intervals"])
    if count > MAX_NODES:
        raise InvalidProblem("length", "nodes.intervals", count, f"at most {MAX_NODES} nodes")
    for key, value in rows.items():
        if len(value) != count:
            raise InvalidProblem("length", f"nodes.{key}", len(value), f"{count}, one for each of nodes.intervals")
    time_steps, sizes = f"a moment from 0 to {MAX_MOMENTS}", f"a whole number from 0 to {MAX_USAGE}"
    intervals = NestedLists.of(rows["intervals"], "nodes.intervals", time_steps)
    costs = NestedLists.of(rows["costs"], "nodes.costs", COSTS)
    usages = NestedLists.of(rows["usages"], "nodes.usages", sizes)
    intervals.require_sizes(np.full(count, 2), "first moment and the one after the last")
    intervals.require((intervals.flat >= 0) & (intervals.flat <= MAX_MOMENTS), time_steps)
    start, stop = intervals.flat.reshape(-1, 2).T
    ordered = np.repeat(start <= stop, 2)
    intervals.require(ordered | (np.arange(ordered.size) % 2 == 0), "at least the first moment")
    costs.require_sizes(np.maximum(costs.sizes, 1), "at least one strategy")
    usages.require_sizes(costs.sizes, "one for each strategy in nodes.costs")
    usages.require((usages.flat >= 0) & (usages.flat <= MAX_USAGE), sizes)
    costs.require((costs.flat >= 0) & ((costs.flat < IMPOSSIBLE) | (costs.flat >= INFINITE_COST)), COSTS)
    return intervals, costs, usages


def _read_edges(stated: dict[str, Any], strategies: Integers) -> tuple[NestedLists, NestedLists]:
    """Ends, costs."""
    ends, rows = (
        _require_member(stated, "edges", "nodes", kind=list),
        _require_member(stated, "edges", "costs", kind=list),
    )
    if len(rows) != len(ends):
        raise InvalidProblem("length", "edges.costs", len(rows), f"{len(ends)}, one for each of edges.nodes")
    node = f"a node from 0 to {strategies.size - 1}"
    pairs, costs = NestedLists.of(ends, "edges.nodes", node), NestedLists.of(rows, "edges.costs", COSTS)
    pairs.require_sizes(np.full(len(ends), 2), "the two nodes of the edge")
    pairs.require((pairs.flat >= 0) & (pairs.flat < strategies.size), node)
    source, target = pairs.flat.reshape(-1, 2).T
    other = np.repeat(source != target, 2)
    pairs.require(other | (np.arange(other.size) % 2 == 0), "a node other than the first")
    height, width = strategies[source], strategies[target]
    costs.require_sizes(height * width, "one for each pair of strategies of the two nodes")
    costs.require((costs.flat >= 0) & ((costs.flat < IMPOSSIBLE) | (costs.flat >= INFINITE_COST)), COSTS)
    return pairs, costs


def _share_matrices(costs: NestedLists, height: Integers) -> tuple[Integers, Integers]:
    """Each different matrix once, laid end to end, and where each edge's begins."""
    found: dict[tuple[int, bytes], int] = {}
    parts, end, start = [], 0, np.zeros(height.size, np.int64)
    bounds, cells = costs.start.tolist(), np.minimum(costs.flat, IMPOSSIBLE)
    raw = cells.tobytes()
    for e, k in enumerate(height.tolist()):
        at = found.setdefault((k, raw[8 * bounds[e] : 8 * bounds[e + 1]]), end)
        if at == end:
            parts.append(cells[bounds[e] : bounds[e + 1]])
            end += bounds[e + 1] - bounds[e]
        start[e] = at
    return start, np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _number_segments(sizes: Integers) -> tuple[Integers, Integers]:
    """Where rows of these sizes begin (and the last ends), and 0, 1, ... in each."""
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return start, np.arange(start[-1]) - np.repeat(start[:-1], sizes)


def _build_arrays(
    nodes: tuple[NestedLists, NestedLists, NestedLists], edges: tuple[NestedLists, NestedLists]
) -> ProblemArrays:
    """Every strategy a class of its own, one span a node."""
    (intervals, costs, usages), (ends, matrices) = nodes, edges
    live_start, live_stop = intervals.flat.reshape(-1, 2).T.copy()
    source, target = ends.flat.reshape(-1, 2).T.copy()
    height, width = costs.sizes[source], costs.sizes[target]
    (source_start, source_class), (target_start, target_class) = _number_segments(height), _number_segments(width)
    pair_start, pair_cost = _share_matrices(matrices, height)
    nothing = np.zeros(0, np.int64)
    return ProblemArrays(
        node_start=costs.start, cost=np.minimum(costs.flat, IMPOSSIBLE), usage=usages.flat,
        live_start=live_start, live_stop=live_stop, span_node=np.arange(live_start.size), span_start=live_start,
        span_stop=live_stop, span_at=costs.start[:-1], span_usage=usages.flat,
        source=source, target=target, source_start=source_start, target_start=target_start,
        source_class=source_class, target_class=target_class, height=height, width=width,
        pair_start=pair_start, pair_cost=pair_cost, edge_usage_edge=nothing, edge_usage_start=nothing,
        edge_usage_stop=nothing, edge_usage_pair_start=nothing, pair_usage=nothing,
        time_steps=int(live_stop.max(initial=0)),
    )  # fmt: skip
