"""Multipliers and messages of a folded problem give the unfolded problem a good bound from the start."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.fold import FoldedProblem, RepeatedLayers
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState, bound_largest_cost

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
def layers(limit: int = 1 << 40) -> RepeatedLayers:
    mesh = Mesh.parse("2x2")
    document = import_zoo("llama-7b", layers=LAYERS, **SIZES)
    graph = load_graph(validate_document(GraphDocument, document, "llama"), mesh)
    return RepeatedLayers.of(formulate(graph, CostModel(mesh, load_profile("cpu")), limit).problem)


@pytest.mark.parametrize("pieces", PIECES)
def test_the_edges_behind_a_folded_edge_share_its_messages_equally(pieces: int) -> None:
    found, folded = layers(), layers().quotient(pieces)
    messages = np.random.default_rng(0).normal(size=_ends(folded.problem))
    shared = found.prolong(folded, solvers.DualWarmStart({}, messages)).messages
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
            assert folded.quotient_node[edge.source] == folded.quotient_node[edge.target]
    for e, total in enumerate(together):
        np.testing.assert_allclose(total, messages[starts[e] : starts[e + 1]], atol=1e-9)


def test_the_bound_of_the_unfolded_problem_begins_near_the_folded_ones() -> None:
    found, folded = layers(), layers().quotient()
    start = solvers.compute_warm_start(folded.problem, 1e-3, 10.0)
    goal = _bound(folded.problem, start, 1)
    cold, warm = _bound(found.problem, None, 1), _bound(found.problem, found.prolong(folded, start), 1)
    best = solvers.solve(found.problem, gap=1e-3).cost
    assert best is not None
    assert cold < warm <= best
    assert goal - warm < (goal - cold) / 4


@pytest.mark.parametrize("times", [1, 4])
def test_so_it_does_in_the_finer_scale_of_a_solve_that_knows_an_assignment(times: int) -> None:
    found, folded = layers(), layers().quotient()
    best = solvers.solve(found.problem, gap=1e-3).cost
    assert best is not None
    warm = found.prolong(folded, solvers.compute_warm_start(folded.problem, 1e-3, 10.0))
    coarse, fine = (_bound(found.problem, warm, 1, largest) for largest in (None, times * best))
    assert best - fine <= best - coarse + best // 1000


@pytest.mark.slow
def test_so_does_the_bound_at_multipliers_where_a_limit_binds() -> None:
    free = solvers.solve(layers().problem, gap=1e-3).assignment
    assert free is not None
    found = layers(solvers.evaluate(layers().problem, free).peak * 3 // 4)
    folded = found.quotient()
    first = solvers.solve(folded.problem, gap=1e-3, time_limit=3, deterministic=True, nearest=8)
    assert first.multipliers
    assert len(first.nearest) == 8
    start = found.prolong(folded, solvers.compute_warm_start(folded.problem, 1e-3, 10.0, multipliers=first.multipliers))
    unpriced = solvers.DualWarmStart({}, start.messages)
    best = solvers.solve(found.problem, gap=5e-2, time_limit=15, deterministic=True, start=start)
    assert best.cost is not None
    assert _bound(found.problem, unpriced, 8) < _bound(found.problem, start, 8) <= best.cost
    assert best.cost - _bound(found.problem, start, 8) < best.cost / 10


def _is_part(found: RepeatedLayers, folded: FoldedProblem, edge: solvers.Edge, number: int) -> bool:
    of, member = folded.problem.edges[number], folded.quotient_node
    classes = edge.source_class[:, None], edge.target_class
    return (
        (of.source, of.target) == (member[edge.source], member[edge.target])
        and all(np.array_equal(getattr(of, name), getattr(edge, name)) for name in ("source_class", "target_class"))
        and np.array_equal(of.cost(*classes), edge.cost(*classes))
    )


def _ends(problem: solvers.Problem) -> int:
    return sum(edge.source_class.size + edge.target_class.size for edge in problem.edges)


def _bound(
    problem: solvers.Problem, start: solvers.DualWarmStart | None, rounds: int, largest: int | None = None
) -> int:
    """Return the bound after rounds of messages in the scale for costs of at most `largest`."""
    ledger = SolveState(problem, 1e-3, None, True, None, None)
    degree = OrientedGraph.of(problem.arrays).degree
    relaxation = Relaxation.for_problem(ledger, FixedPoint.of(degree, largest or bound_largest_cost(problem)), start)
    relaxation.pass_messages(rounds, 0.0)
    return relaxation.bound
