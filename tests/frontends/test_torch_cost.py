"""A model captured by torch costs what the zoo's version costs: two layers, the best plan of each.

Two differences remain: torch splits cos and sin into halves, and reads labels that may be masked.
"""

from __future__ import annotations

from typing import Any

import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.torch import import_torch
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch", "transformers")

MODELS = [("llama", "llama-7b", None), ("llama", "llama-7b", "adam"), ("gpt2", "gpt2", "adam")]
NO_DROPOUT = {"gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}}
GAP, BETWEEN = 2e-3, 0.02
SIZES: dict[str, Any] = {"batch": 64, "seq": 512, "layers": 2, "dtype": "bf16"}


def best(document: dict[str, Any]) -> float:
    mesh, hardware = Mesh.parse("dp=4,tp=4"), load_profile("h100-sxm")
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    question = formulate(graph, CostModel(mesh, hardware), hardware.memory_bytes)
    cost = solvers.solve(question.problem, gap=GAP).cost
    assert cost
    return cost


@pytest.mark.parametrize(("kind", "name", "train"), MODELS)
def test_a_captured_model_costs_what_the_zoo_s_costs(kind: str, name: str, train: str | None) -> None:
    captured = best(import_torch(f"transformers:{kind}", train=train, config=NO_DROPOUT.get(kind), **SIZES))
    written = best(import_zoo(name, train=train, **SIZES))
    assert abs(captured / written - 1) <= GAP + BETWEEN
