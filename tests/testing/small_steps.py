"""Training steps that are planned in a second or two."""

from __future__ import annotations

from functools import cache

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh


@cache
def trained(mesh: str, batch: int = 8, train: str = "adam") -> Graph:
    """Return a training step of one narrow layer of Llama."""
    written = import_zoo(
        "llama-7b",
        batch=batch,
        seq=8,
        train=train,
        layers=1,
        width=16,
        heads=2,
        kv_heads=1,
        feed_forward=32,
        vocabulary=24,
    )
    return load_graph(validate_document(GraphDocument, written, "llama"), Mesh.parse(mesh))
