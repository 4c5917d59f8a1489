"""Copies of a part of a problem, between other nodes and at other time steps."""

from __future__ import annotations

import numpy as np
import pytest

from solvers import Edge, EdgeUsage, InvalidProblem, Node

OWN = np.arange(2, dtype=np.int32)
COST, HELD = np.array([[0, 5], [7, 1]]), np.array([[1, 2], [3, 4]])
EDGE = Edge(0, 1, OWN, OWN, COST, 3, (EdgeUsage(2, 4, HELD), EdgeUsage(4, 9, HELD)))
NODE = Node("a", np.array([4, 5]), np.array([1, 2]), (0, 3), 2)


def test_an_edge_moved_to_other_nodes_equals_one_made_there() -> None:
    like, made = EDGE.between(5, 3, [(7, 8), (8, 8)]), Edge(5, 3, OWN, OWN, COST, 3)
    for name in ("source", "target", "source_class", "target_class", "matrix", "multiplicity"):
        assert getattr(like, name) is getattr(made, name)
    assert [(usage.start, usage.stop, usage.matrix is HELD) for usage in like.usages] == [(7, 8, True), (8, 8, True)]
    assert (EDGE.source, EDGE.target, EDGE.usages[0].start) == (0, 1, 2)


def test_a_node_moved_to_other_time_steps_equals_one_made_there() -> None:
    like = NODE.at("b", 4, 6)
    assert (like.name, like.interval, like.multiplicity, like.more_usage) == ("b", (4, 6), 2, None)
    assert like.cost is NODE.cost
    assert like.usage is NODE.usage


def test_other_nodes_and_moments_are_checked() -> None:
    with pytest.raises(InvalidProblem, match="ends of edge 2 -> 2"):
        EDGE.between(2, 2, [(0, 1), (1, 2)])
    with pytest.raises(InvalidProblem, match="interval of edge usage"):
        EDGE.between(0, 2, [(0, 1), (2, 1)])
    with pytest.raises(InvalidProblem, match="interval of node 'b'"):
        NODE.at("b", -1, 2)
    with pytest.raises(ValueError, match="zip"):
        EDGE.between(0, 2, [(0, 1)])
