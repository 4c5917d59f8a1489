"""Crossover: from an assignment that fits and a cheaper one that does not, one is made that mixes them by layer."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import solvers
from planner.choose.fold.crossover import crossover

LAYERS = 6
LEAN, RICH = 0, 1
# A layer's two strategies: cost and bytes; what it costs where a layer is not as the one before.
COSTS, BYTES, CHANGE = (10, 4), (1, 3), 5
LIMITS = range(LAYERS * BYTES[LEAN], LAYERS * BYTES[RICH])


def stack(limit: int, tail: int = 0) -> solvers.Problem:
    """Layers in a row, all in memory at once, then nodes that belong to none."""
    cost, usage = np.array(COSTS), np.array(BYTES)
    nodes = [solvers.Node(f"layer {i}", cost, usage, (0, 1)) for i in range(LAYERS)]
    nodes += [solvers.Node(f"tail {i}", cost, usage, (0, 1)) for i in range(tail)]
    change = CHANGE * (1 - np.eye(2, dtype=np.int64))
    both = np.arange(2, dtype=np.int32)
    edges = [solvers.Edge(i, i + 1, both, both, change) for i in range(len(nodes) - 1)]
    return solvers.Problem(nodes, edges, limit)


@pytest.mark.parametrize("limit", LIMITS)
def test_for_layers_in_a_row_the_crossover_is_the_best_solution(limit: int) -> None:
    problem = stack(limit)
    found = crossover(problem, [range(LAYERS)], [(LEAN,) * LAYERS, (RICH,) * LAYERS])
    assert found is not None
    every = (solvers.evaluate(problem, choice) for choice in product((LEAN, RICH), repeat=LAYERS))
    assert solvers.evaluate(problem, found).cost == min(each.cost for each in every if each.feasible)


@pytest.mark.parametrize("limit", [14, 17, 20])
def test_nodes_outside_all_layers_follow_the_cheaper_of_both_ways(limit: int) -> None:
    problem = stack(limit, tail=2)
    choices = [(LEAN,) * 8, (RICH,) * 8]
    found = crossover(problem, [range(LAYERS)], choices)
    assert found is not None
    assert found[6] == found[7]
    ways = [
        first * k + last * (LAYERS - k) + end
        for k in range(LAYERS + 1)
        for first, last in (((LEAN,), (RICH,)), ((RICH,), (LEAN,)))
        for end in ((LEAN,) * 2, (RICH,) * 2)
    ]
    judged = [solvers.evaluate(problem, way) for way in ways]
    assert solvers.evaluate(problem, found).cost == min(each.cost for each in judged if each.feasible)


def test_a_node_of_every_other_layer_follows_its_layer() -> None:
    """Three more nodes, each dear where it is not as the layer that it belongs to."""
    layers, both = stack(15), np.arange(2, dtype=np.int32)
    nodes = [*layers.nodes, *(replace(layers.nodes[0], name=f"other {i}") for i in range(LAYERS // 2))]
    apart = 100 * (1 - np.eye(2, dtype=np.int64))
    edges = [*layers.edges, *(solvers.Edge(2 * i, LAYERS + i, both, both, apart) for i in range(LAYERS // 2))]
    problem, orbits = solvers.Problem(nodes, edges, 17), [range(LAYERS), range(LAYERS, len(nodes))]
    found = crossover(problem, orbits, [(LEAN,) * len(nodes), (RICH,) * len(nodes)])
    assert found is not None
    every = (solvers.evaluate(problem, choice) for choice in product((LEAN, RICH), repeat=len(nodes)))
    assert solvers.evaluate(problem, found).cost == min(each.cost for each in every if each.feasible)


def test_the_pair_with_the_cheapest_change_is_taken() -> None:
    """The last strategy is as cheap and as large as the second, and goes with the first at no cost."""
    cost, usage = np.array([*COSTS, COSTS[RICH]]), np.array([*BYTES, BYTES[RICH]])
    nodes = [solvers.Node(f"layer {i}", cost, usage, (0, 1)) for i in range(LAYERS)]
    three = np.arange(3, dtype=np.int32)
    change = np.array([[0, 50, 0], [50, 0, 50], [0, 50, 0]])
    edges = [solvers.Edge(i, i + 1, three, three, change) for i in range(LAYERS - 1)]
    problem = solvers.Problem(nodes, edges, 12)
    found = crossover(problem, [range(LAYERS)], [(1,) * LAYERS, (0,) * LAYERS, (2,) * LAYERS])
    assert found is not None
    assert sorted(found) == [0, 0, 0, 2, 2, 2]


def test_where_nothing_fits_or_everything_does_there_is_no_crossover() -> None:
    for limit in (LIMITS.start - 1, LIMITS.stop):
        assert crossover(stack(limit), [range(LAYERS)], [(LEAN,) * LAYERS, (RICH,) * LAYERS]) is None
    assert crossover(stack(LIMITS[0]), [range(LAYERS)], []) is None
