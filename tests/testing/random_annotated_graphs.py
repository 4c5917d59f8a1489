"""Random annotated graphs of elementwise ops, products, reductions and transposes.

No op reads a value twice, because mlir-opt-19 never ends on such an op.
"""

from __future__ import annotations

import numpy as np

from planner.ir.graph import OUTPUTS, Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from tests.testing.graphs import Sketch


def annotated_graph(
    seed: int, mesh: Mesh, ops: int = 7, partials: bool = False, sizes: tuple[int, ...] = (4, 8)
) -> Graph:
    """Return a random graph whose values are all read, with annotations of some definitions and some uses."""
    random = np.random.default_rng(seed)
    sketch = Sketch()
    values = [sketch.input(*(int(n) for n in random.choice(sizes, random.integers(2, 4)))) for _ in range(3)]
    for _ in range(ops):
        values.append(_op(sketch, values, random, sizes))
    read = {value for op in sketch.ops for value in op.inputs}
    outputs = [value for value in values[3:] if value not in read] + [str(random.choice(values[3:]))]
    return sketch.graph(*dict.fromkeys(outputs), annotations=_annotations(sketch, outputs, mesh, random, partials))


def _op(sketch: Sketch, values: list[str], random: np.random.Generator, sizes: tuple[int, ...]) -> str:
    x = str(random.choice(values[-2:] if random.random() < 0.7 else values))
    shape = sketch.types[x].shape
    match int(random.integers(0, 6)):
        case 0:
            return sketch.op("negate", [x], shape)
        case 1 if len(shape) > 1:
            order = [int(n) for n in random.permutation(len(shape))]
            return sketch.op("transpose", [x], tuple(shape[n] for n in order), permutation=order)
        case 2 if len(shape) > 1:
            kind, dim = str(random.choice(["sum", "max"])), int(random.integers(0, len(shape)))
            return sketch.op(kind, [x], shape[:dim] + shape[dim + 1 :], dims=[dim])
        case 3 | 4 if len(shape) > 1:
            batch = len(shape) > 2 and random.integers(0, 2)
            wanted = (*(shape[:-2] if batch else ()), shape[-1], int(random.choice(sizes)))
            alike = [
                v for v in values if v != x and sketch.types[v].shape and sketch.types[v].shape[:-1] == wanted[:-1]
            ]
            other = str(random.choice(alike)) if alike else sketch.input(*wanted)
            return sketch.op("matmul", [x, other], (*shape[:-1], sketch.types[other].shape[-1]))
        case _:
            alike = [v for v in values if v != x and sketch.types[v].shape == shape]
            return sketch.op("add", [x, str(random.choice(alike)) if alike else sketch.input(*shape)], shape)


def _annotations(
    sketch: Sketch, outputs: list[str], mesh: Mesh, random: np.random.Generator, partials: bool
) -> tuple[Annotation, ...]:
    reducing = {
        op.id: Reduction.MAX if op.op == "max" else Reduction.SUM
        for op in sketch.ops
        if op.op in ("max", "sum", "matmul")
    }
    uses = [(value, op.id) for op in sketch.ops for value in op.inputs] + [(value, OUTPUTS) for value in outputs]
    found = []
    for value in sketch.types:
        if random.random() < 0.2:
            kind = reducing.get(value) if partials else None
            found.append(Annotation(value, _sharding(len(sketch.types[value].shape), mesh, random, kind)))
    for value, user in dict.fromkeys(uses):
        if random.random() < 0.1:
            found.append(Annotation(value, _sharding(len(sketch.types[value].shape), mesh, random, None), user=user))
    return tuple(found)


def _sharding(rank: int, mesh: Mesh, random: np.random.Generator, kind: Reduction | None) -> Sharding:
    lists: list[list[int]] = [[] for _ in range(rank)]
    partial = []
    for axis in random.permutation(len(mesh.axes)):
        place = int(random.integers(0, rank + 2))
        if place < rank:
            lists[place].append(int(axis))
        elif place == rank and kind is not None:
            partial.append(int(axis))
    return Sharding(tuple(map(tuple, lists)), tuple(partial), kind or Reduction.SUM)
