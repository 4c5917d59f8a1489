"""Small training steps: one of two layers, written by hand, whose gradients are sums over its batch, and a Llama."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.run.executor import Array, LaterData
from tests.testing.op_graph_builder import Sketch

WIDTH, OUT = 8, 6
TINY: dict[str, Any] = {"layers": 1, "width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24, "dtype": "f32"}


class PhasedSketch(Sketch):
    """A sketch whose ops have the current phase."""

    phase = "forward"

    def op(self, op: str, operands: list[str], *results: Any, **attrs: Any) -> str:
        name = super().op(op, operands, *results, **attrs)
        self.ops[-1] = replace(self.ops[-1], phase=self.phase)
        return name


def two_layers(batch: int = 4) -> Graph:
    """Return a step of sgd on the loss sum((exp(x v) w)^2); it returns the result, and the next v and w.

    The update reads a forward value that does not depend on data, -w, and so does the forward pass.
    """
    s = PhasedSketch()
    x = s.input(batch, WIDTH)
    v, w = (s.input(*shape, kind="parameter") for shape in ((WIDTH, WIDTH), (WIDTH, OUT)))
    decay = s.op("negate", [w], (WIDTH, OUT))
    a = s.op("exp", [s.op("matmul", [x, v], (batch, WIDTH))], (batch, WIDTH))
    y = s.op("matmul", [a, w], (batch, OUT))
    s.phase = "backward"
    dy = s.op("multiply", [y], (batch, OUT), scalar=2)
    dw = s.op("matmul", [s.op("transpose", [a], (WIDTH, batch), permutation=[1, 0]), dy], (WIDTH, OUT))
    wt = s.op("transpose", [w], (OUT, WIDTH), permutation=[1, 0])
    da = s.op("multiply", [s.op("matmul", [dy, wt], (batch, WIDTH)), a], (batch, WIDTH))
    dv = s.op("matmul", [s.op("transpose", [x], (WIDTH, batch), permutation=[1, 0]), da], (WIDTH, WIDTH))
    s.phase = "update"
    next_v = s.op("subtract", [v, s.op("multiply", [dv], (WIDTH, WIDTH), scalar=1e-3)], (WIDTH, WIDTH))
    step = s.op("add", [dw, s.op("multiply", [decay, dw], (WIDTH, OUT))], (WIDTH, OUT))
    next_w = s.op("subtract", [w, s.op("multiply", [step], (WIDTH, OUT), scalar=1e-3)], (WIDTH, OUT))
    follows = {v: next_v, w: next_w}
    graph = s.graph(y, next_v, next_w)
    return replace(graph, inputs=tuple(replace(entry, next=follows.get(entry.id)) for entry in graph.inputs))


def tiny_llama(train: str = "adam", **sizes: int) -> Graph:
    document = import_zoo("llama-7b", batch=4, seq=8, train=train, **{**TINY, **sizes})
    return load_graph(GraphDocument.model_validate(document), Mesh.parse("2x2"))


def without_next(graph: Graph) -> Graph:
    """Return the graph with outputs in any layout, so that random choices need not agree with those of inputs."""
    return replace(graph, inputs=tuple(replace(entry, next=None) for entry in graph.inputs))


def stack_data(first: Array, name: str, later: LaterData) -> Array:
    """Return the data of all micro-batches in a first dim of their own; other arguments as they are."""
    return np.stack([first, *(each[name] for each in later)]) if later and name in later[0] else first
