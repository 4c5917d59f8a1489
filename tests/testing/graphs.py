"""Small graphs for tests: written by hand, random, or a small version of the benchmarks' transformer."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.ir.graph import Graph, value_id
from planner.ir.mesh import Mesh
from tests.testing.op_graph_builder import Shape, Sketch
from tests.testing.transformer import transformer

__all__ = ["Shape", "Sketch", "random_graph", "small_transformer"]


def small_transformer(mesh: Mesh, **sizes: int) -> Graph:
    """Build one block of the benchmarks' transformer, with smaller default sizes."""
    chosen: dict[str, Any] = {"blocks": 1, "d": 8, "ff": 16, "heads": 4, "batch": 8, "seq": 12} | sizes
    return load_graph(validate_document(GraphDocument, transformer(**chosen), "transformer"), mesh)


def random_graph(seed: int, ops: int, dims: tuple[int, ...] = (8, 12)) -> Graph:
    """Build a graph of random ops on matrices with sizes from `dims`; values may be shared, read twice or unread."""
    random = np.random.default_rng(seed)
    sketch = Sketch()
    values = [sketch.input(*(int(n) for n in random.choice(dims, 2))) for _ in range(3)]
    for _ in range(ops):
        values += _random_op(sketch, values, random)
    made = values[3:]
    outputs = [str(v) for v in random.choice(made, min(3, len(made)), replace=False)] + [values[-1]]
    if random.integers(0, 3) == 0:
        outputs.append(str(random.choice(values)))
    return sketch.graph(*outputs)


def _random_op(sketch: Sketch, values: list[str], random: np.random.Generator) -> list[str]:
    x = str(random.choice(values))
    shape = sketch.types[x].shape
    alike = [v for v in values if sketch.types[v].shape == shape]
    after = [v for v in values if sketch.types[v].shape[0] == shape[1]]
    match int(random.integers(0, 9)):
        case 0:
            return [sketch.op("negate", [x], shape)]
        case 1:
            return [sketch.op("exp", [x], shape)]
        case 2:
            return [sketch.op("softmax", [x], shape, dim=int(random.integers(0, 2)))]
        case 3:
            return [sketch.op("transpose", [x], shape[::-1], permutation=[1, 0])]
        case 4 if shape[0] % 2 == 0:
            part = (shape[0] // 2, shape[1])
            name = sketch.op("split", [x], part, part, dim=0)
            return [name] if random.integers(0, 2) else [name, value_id(name, 1)]
        case 5 if after:
            other = str(random.choice(after))
            return [sketch.op("matmul", [x, other], (shape[0], sketch.types[other].shape[1]))]
        case 6:
            return [sketch.op("max", [x], (shape[0], 1), dims=[1], keepdim=True)]
        case _:
            return [sketch.op(str(random.choice(["add", "multiply"])), [x, str(random.choice(alike))], shape)]
