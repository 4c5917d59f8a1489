"""Conversion of an IOPDDL document to a problem, with full validation.

    {"problem": {"nodes": {"intervals": [[0, 4], ...], "costs": [[7, 0], ...], "usages": [[1, 2], ...]},
                 "edges": {"nodes": [[0, 1], ...], "costs": [[0, 1, 1, 0], ...]},
                 "usage_limit": 12}}

The format is defined at https://github.com/google/iopddl. Without usage_limit there is no limit; other keys are
ignored. Intervals are half open. An edge's costs are in row-major order: rows are the first node's strategies. A cost
of 10**18 or more is the contest's infinity and becomes IMPOSSIBLE; costs from IMPOSSIBLE up to there are rejected.
Equal matrices are stored once, on which the speed of all later steps depends.
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
from solvers.problem_arrays import PartPool, ProblemArrays, compute_offsets, own_kinds, ragged_arange

Integers = NDArray[np.int64]

INFINITE_COST = 10**18
MAX_NODES, MAX_TIME_STEPS, MAX_USAGE = 1 << 20, 1 << 24, 10**16
COSTS = f"an integer from 0 to {IMPOSSIBLE - 1}, or from {INFINITE_COST} to {(1 << 63) - 1} for infinity"


@dataclass(frozen=True, slots=True, eq=False)
class NestedLists:
    """Rows of integers laid end to end: row i is flat[start[i] : start[i + 1]]. `path` locates them in the document."""

    path: str
    flat: Integers
    start: Integers

    @staticmethod
    def of(rows: list[Any], path: str, wanted: str) -> NestedLists:
        """Flatten a list of lists of 64-bit integers; raises InvalidProblem at the first other value.

        wanted: what a number there should be, for the message.
        """
        if any(type(row) is not list for row in rows):
            i = next(i for i, row in enumerate(rows) if type(row) is not list)
            raise InvalidProblem("row", f"{path}[{i}]", reprlib.repr(rows[i]), "a list")
        start = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=start[1:])
        # Types are compared, not tested by isinstance: True is an int to Python, but not a number in JSON.
        if set(map(type, chain.from_iterable(rows))) <= {int}:
            try:
                return NestedLists(path, np.fromiter(chain.from_iterable(rows), np.int64, int(start[-1])), start)
            except OverflowError:
                pass
        position, value = next(
            (position, value)
            for position, value in enumerate(chain.from_iterable(rows))
            if type(value) is not int or abs(value) >= 1 << 63
        )
        raise InvalidProblem("number", _element_path(path, start, position), reprlib.repr(value), wanted)

    @property
    def sizes(self) -> Integers:
        """The length of each row."""
        return np.diff(self.start)

    def require(self, is_valid: NDArray[np.bool_], wanted: str) -> None:
        """Raise InvalidProblem at the first number that is not valid (one flag per number)."""
        if not is_valid.all():
            position = int(np.argmin(is_valid))
            where = _element_path(self.path, self.start, position)
            raise InvalidProblem("number", where, int(self.flat[position]), wanted)

    def require_sizes(self, wanted: Integers, meaning: str) -> None:
        """Raise InvalidProblem at the first row whose size is not the wanted one."""
        wrong = np.flatnonzero(self.sizes != wanted)
        if wrong.size:
            i = int(wrong[0])
            raise InvalidProblem("length", f"{self.path}[{i}]", int(self.sizes[i]), f"{int(wanted[i])}, {meaning}")


def _element_path(path: str, start: Integers, position: int) -> str:
    i = int(np.searchsorted(start, position, side="right")) - 1
    return f"{path}[{i}][{position - int(start[i])}]"


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
    """Return the problem of a parsed document. Raises InvalidProblem with a path such as nodes.costs[12][3]."""
    stated = _require_member(document, "", "problem", kind=dict)
    nodes, edges = _require_member(stated, "", "nodes", kind=dict), _require_member(stated, "", "edges", kind=dict)
    stated_nodes = _read_nodes(nodes)
    return Problem.from_arrays(
        _build_arrays(stated_nodes, _read_edges(edges, stated_nodes[1].sizes)), _read_limit(stated)
    )


def _read_limit(stated: dict[str, Any]) -> int | None:
    limit = stated.get("usage_limit")
    if limit is not None and (type(limit) is not int or not 0 <= limit < 1 << 63):
        raise InvalidProblem("value", "usage_limit", reprlib.repr(limit), f"an integer from 0 to {(1 << 63) - 1}")
    return limit


def _read_nodes(stated: dict[str, Any]) -> tuple[NestedLists, NestedLists, NestedLists]:
    """Return the validated intervals, costs and usages."""
    rows = {key: _require_member(stated, "nodes", key, kind=list) for key in ("intervals", "costs", "usages")}
    count = len(rows["intervals"])
    if count > MAX_NODES:
        raise InvalidProblem("length", "nodes.intervals", count, f"at most {MAX_NODES} nodes")
    for key, value in rows.items():
        if len(value) != count:
            raise InvalidProblem("length", f"nodes.{key}", len(value), f"{count}, one for each of nodes.intervals")
    time_steps, sizes = f"a time step from 0 to {MAX_TIME_STEPS}", f"an integer from 0 to {MAX_USAGE}"
    intervals = NestedLists.of(rows["intervals"], "nodes.intervals", time_steps)
    costs = NestedLists.of(rows["costs"], "nodes.costs", COSTS)
    usages = NestedLists.of(rows["usages"], "nodes.usages", sizes)
    intervals.require_sizes(np.full(count, 2), "the first time step and the one after the last")
    intervals.require((intervals.flat >= 0) & (intervals.flat <= MAX_TIME_STEPS), time_steps)
    start, stop = intervals.flat.reshape(-1, 2).T
    ordered = np.repeat(start <= stop, 2)
    # Only the second number of an interval is reported: odd positions.
    intervals.require(ordered | (np.arange(ordered.size) % 2 == 0), "at least the first time step")
    costs.require_sizes(np.maximum(costs.sizes, 1), "at least one strategy")
    usages.require_sizes(costs.sizes, "one for each strategy in nodes.costs")
    usages.require((usages.flat >= 0) & (usages.flat <= MAX_USAGE), sizes)
    costs.require((costs.flat >= 0) & ((costs.flat < IMPOSSIBLE) | (costs.flat >= INFINITE_COST)), COSTS)
    return intervals, costs, usages


def _read_edges(stated: dict[str, Any], strategies: Integers) -> tuple[NestedLists, NestedLists]:
    """Return the validated ends and costs; strategies: the number per node."""
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
    different = np.repeat(source != target, 2)
    pairs.require(different | (np.arange(different.size) % 2 == 0), "a node other than the first")
    height, width = strategies[source], strategies[target]
    costs.require_sizes(height * width, "one for each pair of strategies of the two nodes")
    costs.require((costs.flat >= 0) & ((costs.flat < IMPOSSIBLE) | (costs.flat >= INFINITE_COST)), COSTS)
    return pairs, costs


def _build_arrays(
    nodes: tuple[NestedLists, NestedLists, NestedLists], edges: tuple[NestedLists, NestedLists]
) -> ProblemArrays:
    """Return the flat arrays: each strategy is a class of its own, each node has one span."""
    (intervals, costs, usages), (ends, matrices) = nodes, edges
    span_start, span_stop = intervals.flat.reshape(-1, 2).T.copy()
    source, target = ends.flat.reshape(-1, 2).T.copy()
    height, width = costs.sizes[source], costs.sizes[target]
    source_start, target_start = compute_offsets(height), compute_offsets(width)
    pool = PartPool(np.zeros(0, np.int64))
    pair_start = pool.add_matrices(np.minimum(matrices.flat, IMPOSSIBLE), matrices.sizes, width)
    return ProblemArrays(
        node_start=costs.start, cost=np.minimum(costs.flat, IMPOSSIBLE), span_node=np.arange(span_start.size),
        span_start=span_start, span_stop=span_stop, span_at=costs.start[:-1], span_usage=usages.flat,
        source=source, target=target, source_start=source_start, target_start=target_start,
        source_class=ragged_arange(source_start), target_class=ragged_arange(target_start), height=height, width=width,
        **own_kinds(height, width), pair_start=pair_start, pair_cost=pool.concatenate(),
        time_steps=int(span_stop.max(initial=0)),
    )  # fmt: skip
