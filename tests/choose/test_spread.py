"""Prices and messages of a folded problem make the unfolded one's bound good from the start."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.fold import Folded, Layers
from planner.choose.formulate import formulate
from planner.choose.hardware import load
from planner.documents.graphs import graph_from
from planner.documents.schemas import GraphDocument, checked
from planner.frontends.zoo import import_zoo
from planner.model.mesh import Mesh
from solvers.ledger import Ledger, largest_cost
from solvers.potentials import Scale
from solvers.relaxation import Relaxation
from solvers.topology import Topology

LAYERS, PIECES = 6, (1, 2)
SIZES: dict[str, Any] = {
    "train": "adam",
    "width": 16,
    "heads": 2,
    "kv_heads": 1,
    "feed_forward": 32,
    "vocabulary": 24,
    "batch": 8,
    "seq": 8,
}


@cache
def layers(limit: int = 1 << 40) -> Layers:
    mesh = Mesh.parse("2x2")
    document = import_zoo("llama-7b", layers=LAYERS, **SIZES)
    graph = graph_from(checked(GraphDocument, document, "llama"), mesh)
    return Layers.of(formulate(graph, CostModel(mesh, load("cpu")), limit).problem)


@pytest.mark.parametrize("pieces", PIECES)
def test_the_edges_behind_a_folded_edge_share_its_messages_equally(pieces: int) -> None:
    found, folded = layers(), layers().folded(pieces)
    messages = np.random.default_rng(0).normal(size=_ends(folded.problem))
    shared = found.spread(folded, solvers.Start({}, messages)).messages
    assert shared.size == _ends(found.problem)
    starts = [0, *accumulate(edge.source_class.size for edge in folded.problem.edges)]
    together = [np.zeros(edge.source_class.size) for edge in folded.problem.edges]
    begin = 0
    for edge in found.problem.edges:
        own, begin = shared[begin : begin + edge.source_class.size], begin + edge.source_class.size
        if own.any():
            among = [e for e in range(len(together)) if _is_part(found, folded, edge, e)]
            assert len(among) == 1
            together[among[0]] += own
        else:
            assert folded.member[edge.source] == folded.member[edge.target]
    for e, total in enumerate(together):
        np.testing.assert_allclose(total, messages[starts[e] : starts[e + 1]], atol=1e-9)


def test_the_bound_of_the_unfolded_problem_begins_near_the_folded_ones() -> None:
    found, folded = layers(), layers().folded()
    start = solvers.converged(folded.problem, 1e-3, 10.0)
    goal = _bound(folded.problem, start, 1)
    cold, warm = _bound(found.problem, None, 1), _bound(found.problem, found.spread(folded, start), 1)
    best = solvers.solve(found.problem, gap=1e-3).cost
    assert best is not None
    assert cold < warm <= best
    assert goal - warm < (goal - cold) / 4


@pytest.mark.slow
def test_so_it_does_at_prices_where_a_limit_binds() -> None:
    free = solvers.solve(layers().problem, gap=1e-3).choice
    assert free is not None
    found = layers(solvers.evaluate(layers().problem, free).peak * 3 // 4)
    folded = found.folded()
    first = solvers.solve(folded.problem, gap=1e-3, time_limit=3, deterministic=True, nearest=8)
    assert first.prices
    assert len(first.nearest) == 8
    start = found.spread(folded, solvers.converged(folded.problem, 1e-3, 10.0, first.prices))
    unpriced = solvers.Start({}, start.messages)
    best = solvers.solve(found.problem, gap=1e-3, time_limit=3, deterministic=True, start=start)
    assert best.cost is not None
    assert _bound(found.problem, unpriced, 8) < _bound(found.problem, start, 8) <= best.cost
    assert best.cost - _bound(found.problem, start, 8) < best.cost / 10


def _is_part(found: Layers, folded: Folded, edge: solvers.Edge, number: int) -> bool:
    of, member = folded.problem.edges[number], folded.member
    return (of.source, of.target) == (member[edge.source], member[edge.target]) and all(
        np.array_equal(getattr(of, name), getattr(edge, name)) for name in ("matrix", "source_class", "target_class")
    )


def _ends(problem: solvers.Problem) -> int:
    return sum(edge.source_class.size + edge.target_class.size for edge in problem.edges)


def _bound(problem: solvers.Problem, start: solvers.Start | None, rounds: int) -> int:
    ledger = Ledger(problem, 1e-3, None, True, None, None)
    degree = Topology.of(problem.layout).degree
    relaxation = Relaxation.over(ledger, Scale.of(degree, largest_cost(problem)), start)
    relaxation.tighten(rounds, 0.0)
    return relaxation.bound
