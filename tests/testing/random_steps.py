"""Small training steps: a forward chain with parameters, and a backward pass that reads its values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.ir.graph import Graph
from tests.testing.graphs import Sketch

ALONE = ("exp", "negate", "sigmoid", "transpose", "softmax")
ATTRS: dict[str, dict[str, Any]] = {"transpose": {"permutation": [1, 0]}, "softmax": {"dim": 1}}


def random_step(seed: int, forward: int = 5, backward: int = 4, size: int = 8) -> Graph:
    """Return a step of ops on square matrices, so that any op can read any value; some values are not read later."""
    random = np.random.default_rng(seed)
    sketch = Sketch()
    values = [sketch.input(size, size)]
    weights = [sketch.input(size, size, kind="parameter") for _ in range(2)]
    values.append(sketch.op("matmul", [values[0], weights[0]], (size, size)))
    for _ in range(forward - 1):
        values.append(_op(sketch, [str(random.choice(values[-2:])), str(random.choice(values + weights))], random))
    gradient = values[-1]
    for _ in range(backward):
        gradient = _op(sketch, [gradient, str(random.choice(values + weights))], random, alone=False)
    outputs = [gradient, *random.choice(values[1:], int(random.integers(0, 2)), replace=False).tolist()]
    return with_phases(sketch.graph(*outputs), forward)


def with_phases(graph: Graph, forward: int) -> Graph:
    """Return the graph with all ops after the first `forward` in the backward pass."""
    ops = (replace(op, phase="forward" if place < forward else "backward") for place, op in enumerate(graph.ops))
    return replace(graph, ops=tuple(ops))


def _op(sketch: Sketch, operands: list[str], random: np.random.Generator, alone: bool = True) -> str:
    shape = sketch.types[operands[0]].shape
    kind = str(random.choice(["matmul", "multiply", *(ALONE if alone else [])]))
    return sketch.op(kind, operands[: 1 if kind in ALONE else 2], shape, **ATTRS.get(kind, {}))
