"""Random training steps of a few layers, each of which can be a stage of a pipeline, with gradients and updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.ir.graph import Graph
from tests.testing.micro_steps import PhasedSketch

SIZES = (96, 512, 2048, 6144)
LAYERS = ("scale", "shift", "matmul")


def random_training(seed: int, layers: int) -> Graph:
    """Return a step of sgd on the loss sum(y^2); y is the result of products, scalings and shifts by parameters.

    Any layer may be followed by exp. The graph returns y and the next parameters.
    """
    random = np.random.default_rng(seed)
    s, kinds = PhasedSketch(), [str(kind) for kind in random.choice(LAYERS, layers)]
    batch, width = (int(size) for size in random.choice(SIZES, 2))
    values, weights, smooth = [s.input(batch, width)], [], []
    for kind in kinds:
        columns = int(random.choice(SIZES)) if kind == "matmul" else s.types[values[-1]].shape[1]
        shape = (s.types[values[-1]].shape[1], columns) if kind == "matmul" else (columns,)
        weights.append(s.input(*shape, kind="parameter"))
        name = {"scale": "multiply", "shift": "add", "matmul": "matmul"}[kind]
        values.append(s.op(name, [values[-1], weights[-1]], (batch, columns)))
        smooth.append(bool(random.integers(0, 2)))
        if smooth[-1]:
            values[-1] = s.op("exp", [values[-1]], (batch, columns))
    gradients = _differentiate(s, kinds, values, weights, smooth)
    s.phase = "update"
    follows = {w: s.op("subtract", [w, gradients[w]], s.types[w].shape) for w in weights}
    graph = s.graph(values[-1], *follows.values())
    return replace(graph, inputs=tuple(replace(entry, next=follows.get(entry.id)) for entry in graph.inputs))


def _differentiate(
    s: PhasedSketch, kinds: list[str], values: list[str], weights: list[str], smooth: list[bool]
) -> dict[str, str]:
    """Add the backward pass and return the gradient of each parameter; `values`: of the input and of each layer."""
    s.phase = "backward"
    gradients = {}
    passed = s.op("multiply", [values[-1]], s.types[values[-1]].shape, scalar=2)
    for number in reversed(range(len(kinds))):
        before, weight = values[number], weights[number]
        shape = s.types[values[number + 1]].shape
        if smooth[number]:
            passed = s.op("multiply", [passed, values[number + 1]], shape)
        if kinds[number] == "shift":
            gradients[weight] = s.op("sum", [passed], shape[1:], dims=[0])
        elif kinds[number] == "matmul":
            turned = s.op("transpose", [before], s.types[before].shape[::-1], permutation=[1, 0])
            gradients[weight] = s.op("matmul", [turned, passed], s.types[weight].shape)
            if number:
                turned = s.op("transpose", [weight], s.types[weight].shape[::-1], permutation=[1, 0])
                passed = s.op("matmul", [passed, turned], s.types[before].shape)
        else:
            terms = s.op("multiply", [passed, before], shape)
            gradients[weight] = s.op("sum", [terms], shape[1:], dims=[0])
            if number:
                passed = s.op("multiply", [passed, weight], shape)
    return gradients
