"""Repeated layers of hand-made graphs: which stack is found first, and which nodes become pairs."""

from __future__ import annotations

from itertools import pairwise

from planner.choose.fold.colour_refinement import LabelledEdge, LabelledGraph
from planner.choose.fold.repeated_layers import find_stacks


def two_chains(layers: int) -> LabelledGraph:
    """Layers c, d, s; from s two like chains x to v, with edges of their own, and edges to the middle of either that
    look alike. One of the chains is shorter in the last layer."""
    parts = ["c", "d", "s", *(part + chain for chain in "ab" for part in "xqtuv")]
    names = [*[f"{part}{layer}" for layer in range(layers) for part in parts][:-1], f"c{layers}", f"d{layers}"]
    edges = [(f"{one}{layer}", f"{other}{layer}", 3) for layer in range(layers + 1) for one, other in ("cd", "ds")]
    for layer in range(layers):
        edges += [(f"s{layer}", f"{to}{layer}", label) for label, to in enumerate(("tb", "xa", "xb"))]
        edges += [(f"s{layer}", f"ta{layer}", 0), (f"s{layer}", f"c{layer + 1}", 3)]
        edges += [(f"{a}{chain}{layer}", f"{b}{chain}{layer}", 0) for chain in "ab" for a, b in pairwise("xqtuv")]
    place = {name: k for k, name in enumerate(names)}
    into, out = ([list[LabelledEdge]() for _ in names] for _ in range(2))
    for one, other, label in edges:
        if one in place and other in place:
            into[place[other]].append(LabelledEdge(place[one], label))
            out[place[one]].append(LabelledEdge(place[other], label))
    return LabelledGraph([0] * len(names), into, out)


def test_the_stack_that_ties_the_most_is_found_first() -> None:
    """A chain of 24 like nodes, and one of twice 20 that look like no others: near the ends of either nothing is."""
    labels = [*[0] * 24, *range(1, 21), *range(1, 21)]
    into = [[] if v in (0, 24) else [LabelledEdge(v - 1, 0)] for v in range(len(labels))]
    out = [[] if v in (23, 63) else [LabelledEdge(v + 1, 0)] for v in range(len(labels))]
    assert find_stacks(LabelledGraph(labels, into, out)).layers == (20, 2)


def test_a_node_that_an_edge_leads_to_looks_unlike_one_that_it_comes_from() -> None:
    into, out = (
        [[LabelledEdge(1, 0)], [], [], [LabelledEdge(2, 0)]],
        [[], [LabelledEdge(0, 0)], [LabelledEdge(3, 0)], []],
    )
    assert LabelledGraph([0, 1, 0, 1], into, out).colours(1) == [[0, 1, 0, 1], [0, 1, 2, 3]]


def test_equal_edges_are_told_apart_by_other_edges() -> None:
    orbits = find_stacks(two_chains(4)).orbits
    assert [{node % 13 for node in orbit} for orbit in orbits] == [{orbit[0] % 13} for orbit in orbits]
    assert sorted(map(len, orbits)) == [3] * 5 + [4] * 8
