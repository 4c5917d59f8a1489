"""Training steps of chains of small layers, whose passes are short or empty where they are cut into stages."""

from __future__ import annotations

from dataclasses import replace

from planner.ir.graph import Graph
from tests.testing.micro_steps import PhasedSketch

BATCH, WIDTH = 4, 6


def chain(layers: str, *, is_sum: bool, dtype: str = "f32") -> Graph:
    """Return a step of sgd on layers that scale (m), multiply by a matrix (w) or shift (s) and then negate (-)."""
    s, kinds = PhasedSketch(dtype), layers.split()
    values, weights = [s.input(BATCH, WIDTH)], []
    shape = BATCH, WIDTH
    for kind in kinds:
        weights.append(s.input(*((WIDTH, WIDTH) if kind[0] == "w" else (WIDTH,)), kind="parameter"))
        op = {"w": "matmul", "s": "add", "m": "multiply"}[kind[0]]
        values.append(s.op(op, [values[-1], weights[-1]], shape))
        if kind.endswith("-"):
            values[-1] = s.op("negate", [values[-1]], shape)
    s.phase = "backward"
    passed = s.op("full", [], shape, value=1.0) if is_sum else s.op("multiply", [values[-1]], shape, scalar=2)
    gradients: dict[str, str] = {}
    for kind, before, weight in reversed(list(zip(kinds, values, weights, strict=False))):
        if kind.endswith("-"):
            passed = s.op("negate", [passed], shape)
        if kind[0] == "w":
            turned = s.op("transpose", [before], shape[::-1], permutation=[1, 0])
            gradients[weight] = s.op("matmul", [turned, passed], (WIDTH, WIDTH))
            turned = s.op("transpose", [weight], (WIDTH, WIDTH), permutation=[1, 0])
            passed = s.op("matmul", [passed, turned], shape)
        else:
            terms = passed if kind[0] == "s" else s.op("multiply", [passed, before], shape)
            gradients[weight] = s.op("sum", [terms], (WIDTH,), dims=[0])
            passed = passed if kind[0] == "s" else s.op("multiply", [passed, weight], shape)
    s.phase = "update"
    follows = {weight: s.op("subtract", [weight, gradients[weight]], s.types[weight].shape) for weight in weights}
    graph = s.graph(values[-1], *follows.values())
    return replace(graph, inputs=tuple(replace(entry, next=follows.get(entry.id)) for entry in graph.inputs))
