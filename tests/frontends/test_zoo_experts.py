"""Which expert takes which token: the graph's dispatch and combine compared with the rule, token by token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo.experts import route_tokens
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.ir.mesh import Mesh
from planner.run.executor import run_whole

# batch, sequence, experts, active, slots an expert has
CASES = [(1, 4, 2, 1, 2), (2, 9, 4, 2, 5), (2, 9, 4, 2, 1), (3, 7, 3, 3, 4), (1, 8, 5, 2, 8), (2, 1, 4, 2, 1)]


def told(logits: Any, active: int, slots: int) -> tuple[Any, Any]:
    """All first choices in order of the tokens, then all second ones; who finds an expert full is left out."""
    batch, sequence, experts = logits.shape
    dispatch, combine = np.zeros((2, batch, sequence, experts, slots))
    for b in range(batch):
        taken = [0] * experts
        for k in range(active):
            for s in range(sequence):
                best = np.argsort(-logits[b, s], kind="stable")[:active]
                share = math.exp(logits[b, s, best[k]]) / sum(math.exp(logits[b, s, e]) for e in best)
                if taken[best[k]] < slots:
                    dispatch[b, s, best[k], taken[best[k]]] = 1
                    combine[b, s, best[k], taken[best[k]]] = share
                taken[best[k]] += 1
    return dispatch, combine


@pytest.mark.parametrize(("batch", "sequence", "experts", "active", "slots"), CASES)
def test_tokens_go_where_the_rule_says(batch: int, sequence: int, experts: int, active: int, slots: int) -> None:
    w = ModelBuilder("f64")
    logits = w.input("logits", [batch, sequence, experts], "input")
    document = w.document("routes", route_tokens(w, logits, active, slots=slots))
    graph = load_graph(GraphDocument.model_validate(document), Mesh.parse("1"))
    scores = np.random.default_rng(0).normal(size=logits.shape)
    values = run_whole(graph, {"logits": scores}, np, precision="f64")
    for got, wanted in zip(graph.outputs, told(scores, active, slots), strict=True):
        np.testing.assert_allclose(values[got], wanted, atol=1e-14)
