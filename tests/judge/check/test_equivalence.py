"""Two graphs that differ in names and order only are equal; every other difference is reported."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from planner.ir.graph import Graph
from planner.judge.check.equivalence import align_order, is_equivalent
from planner.judge.graph_matching import match_edited, match_graphs
from tests.testing.check_models import Document, graph, model
from tests.testing.graph_edits import DEARER, NEUTRAL, exported_again

SAME = [name for name in NEUTRAL if "retuned" not in name]


def replaced(document: Document, path: list[Any], value: Any) -> Document:
    found = copy.deepcopy(document)
    at: Any = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return found


PIN = {"value": "x", "sharding": {"split_axes": [["dp"]]}, "required": True, "user": None}
OTHERS: dict[str, Callable[[Document], Document]] = {
    "an attribute": lambda document: replaced(document, ["nodes", 0, "attrs", "eps"], 1e-3),
    "the kind of an input": lambda document: replaced(document, ["inputs", 1, "kind"], "buffer"),
    "a shape": lambda document: model(ff=512),
    "an op more": lambda document: model(blocks=2),
    "the phase of an op": lambda document: replaced(document, ["nodes", 0, "phase"], "backward"),
    "an option asked for": lambda document: replaced(document, ["nodes", 0, "option"], {}),
    "an annotation": lambda document: replaced(document, ["annotations"], [PIN]),
    "an output more": lambda document: replaced(
        document, ["outputs"], [*document["outputs"], document["nodes"][0]["id"]]
    ),
    "another operand": lambda document: replaced(document, ["nodes", -1, "inputs", 0], "x"),
}


def same(one: Graph, other: Graph) -> bool:
    return is_equivalent(one, other, match_graphs(one, other))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("edit", SAME)
def test_names_and_order_make_no_difference(edit: str, seed: int) -> None:
    edited = NEUTRAL[edit](model(), random.Random(seed))
    assert edited is not None
    assert same(graph(model()), graph(edited.document))


@pytest.mark.parametrize("what", OTHERS)
def test_every_other_difference_is_found(what: str) -> None:
    other = graph(OTHERS[what](model()))
    assert not same(graph(model()), other)
    assert not same(other, graph(model()))
    assert same(other, other)


@pytest.mark.parametrize("edit", DEARER)
def test_an_edited_graph_in_the_order_of_its_base_is_the_same_graph(edit: str) -> None:
    draw = random.Random(1)
    document = model(dtype="bf16")
    edited = DEARER[edit](document, draw)
    assert edited is not None
    exported = exported_again(edited.document, draw).document
    start, new = graph(document), graph(exported)
    found = match_edited(start, new, match_graphs(start, new))
    assert all(len(set(each.values())) == len(each) for each in (found.ops, found.values))
    ordered = align_order(start, new, found)
    assert same(new, ordered)
    place = {op.id: number for number, op in enumerate(start.ops)}
    kept = [place[found.ops[op.id]] for op in ordered.ops if op.id in match_graphs(start, new).ops]
    assert all(one < other for one, other in pairwise(kept))


@pytest.mark.parametrize("seed", range(4))
def test_equal_branches_are_matched_with_their_own(seed: int) -> None:
    """Query, key and value differ only by where they are read, and something after them is new."""
    document = exported_again(blocked_at_the_end(), random.Random(seed)).document
    start, new = graph(model()), graph(document)
    found = match_graphs(start, new)
    known = {op.id: op for op in start.ops}
    assert len(found.ops) == len(start.ops)
    for op in new.ops[:-1]:
        assert tuple(found.values[value] for value in op.inputs) == known[found.ops[op.id]].inputs


def blocked_at_the_end() -> Document:
    """The model with an op more, that reads what it returns."""
    document = model()
    (last,) = document["outputs"]
    kind = next(each["outputs"][0] for each in document["nodes"] if each["id"] == last)
    more = {"id": "more", "op": "relu", "inputs": [last], "attrs": {}, "outputs": [kind]}
    return {**document, "nodes": [*document["nodes"], more], "outputs": ["more"]}
