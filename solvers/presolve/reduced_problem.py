"""Conversion of a presolve state back to a problem, array by array."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN, ragged_indices
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays, compute_offsets, own_kinds

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class KeptIntervals(NamedTuple):
    """Spans ordered by node (in the reduced numbering) and start; usage holds `size` bytes for each, end to end."""

    node: Integers
    start: Integers
    stop: Integers
    size: Integers
    usage: Integers


def build_reduced(state: PresolveState) -> tuple[Problem, Integers, Integers]:
    """Return the reduced problem, the original node of each of its nodes, and the original strategy of each strategy.

    Nodes and strategies keep their order. The constant and the base usage, if any, become one more node at the end with
    a single strategy (its original is -1); so does an empty problem. The spans must be normalised.
    """
    possible = (state.cost < FORBIDDEN) & np.repeat(state.alive, state.sizes)
    node, strategy = (column[possible] for column in ragged_indices(state.sizes))
    cost, left = state.cost[possible], np.flatnonzero(state.alive)
    spans = _collect_intervals(state, possible)
    base = _add_base_usage(state.base, left.size)
    if state.constant or base.node.size or not left.size:
        cost, node, strategy = np.append(cost, state.constant), np.append(node, -1), np.append(strategy, 0)
        left = np.append(left, -1)
        spans = KeptIntervals(*(np.concatenate(columns) for columns in zip(spans, base, strict=True)))
    sizes = np.diff(np.append(np.flatnonzero(np.diff(node, prepend=-2)), node.size))
    arrays = ProblemArrays(
        cost=np.where(cost < IMPOSSIBLE, cost, IMPOSSIBLE), time_steps=state.base.size,
        node_start=compute_offsets(sizes), span_node=spans.node, span_start=spans.start, span_stop=spans.stop,
        span_at=compute_offsets(spans.size)[:-1], span_usage=spans.usage, **_edge_arrays(state, possible),
    )  # fmt: skip
    return Problem.from_arrays(arrays, state.limit), left, strategy


def _possible_strategies(
    state: PresolveState, possible: Flags, node: Integers, *, at: Integers
) -> tuple[Integers, Integers]:
    """For rows by the strategies of these nodes, which begin at `at`, return the positions of the permitted strategies
    and how many each row has."""
    row, x = ragged_indices(state.sizes[node])
    kept = possible[state.node_start[node][row] + x]
    return (at[row] + x)[kept], np.bincount(row[kept], minlength=node.size)


def _collect_intervals(state: PresolveState, possible: Flags) -> KeptIntervals:
    uses = state.uses
    places, sizes = _possible_strategies(state, possible, uses.node, at=uses.at)
    number = np.cumsum(state.alive) - 1
    return KeptIntervals(number[uses.node], uses.start, uses.stop, sizes, uses.usage[places])


def _add_base_usage(base: Integers, node: int) -> KeptIntervals:
    """Return the base usage as spans of one node with one strategy, one for each run of equal positive usage."""
    new = np.flatnonzero(np.diff(base, prepend=-1))
    stop = np.append(new[1:], base.size)
    some = base[new] > 0
    one = np.ones(int(some.sum()), np.int64)
    return KeptIntervals(node * one, new[some], stop[some], one, base[new][some])


def _edge_arrays(state: PresolveState, possible: Flags) -> dict[str, Any]:
    """Return the arrays of edges. An edge that was turned without transposing its matrix is turned back."""
    edges, number = state.edges.drop_unused_cells(0), np.cumsum(state.alive) - 1
    turned = edges.high_step != 1

    def ends(low: Integers, high: Integers) -> tuple[Integers, Integers]:
        return np.where(turned, high, low), np.where(turned, low, high)

    (source, target), (source_at, target_at) = ends(edges.low, edges.high), ends(edges.low_at, edges.high_at)
    source_places, source_sizes = _possible_strategies(state, possible, source, at=source_at)
    target_places, target_sizes = _possible_strategies(state, possible, target, at=target_at)
    height, width = ends(edges.low_classes, edges.high_classes)
    return {
        "source": number[source],
        "target": number[target],
        "source_start": compute_offsets(source_sizes),
        "target_start": compute_offsets(target_sizes),
        "source_class": edges.classes[source_places],
        "target_class": edges.classes[target_places],
        "height": height,
        "width": width,
        **own_kinds(height, width),
        "pair_start": edges.pair_at,
        "pair_cost": np.where(edges.cells < IMPOSSIBLE, edges.cells, IMPOSSIBLE),
    }
