"""Small annotated graphs for the conformance tests, and short notation for their propagated and materialised forms."""

from __future__ import annotations

import re

from planner.ir.collectives import Kind
from planner.ir.graph import OUTPUTS, Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Reduction, Sharding, shard_shape
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagated import PropagatedShardings
from tests.testing.graphs import Sketch

Annotations = tuple[Annotation, ...]


def sharding(text: str) -> Sharding:
    """Parse a sharding in the form in which shardings print, for example `[[0],[1,2]] sum[3]`."""
    match = re.fullmatch(r"\[(.*?)\](?: (\w+)\[([\d,]*)\])?", text)
    assert match, text
    lists = [_axes(part) for part in re.findall(r"\[([\d,]*)\]", match[1])]
    return Sharding(tuple(lists), _axes(match[3] or ""), Reduction(match[2] or "sum"))


def _axes(text: str) -> tuple[int, ...]:
    return tuple(int(axis) for axis in text.split(",") if axis)


def of(value: str, text: str, required: bool = True) -> Annotation:
    """Return an annotation of a value's definition."""
    return Annotation(value, sharding(text), required)


def used(value: str, text: str, user: str = OUTPUTS, required: bool = True) -> Annotation:
    """Return an annotation of one use of a value."""
    return Annotation(value, sharding(text), required, user)


def lines(completed: PropagatedShardings) -> list[str]:
    return str(completed).splitlines()


def elementwise(*annotations: Annotation) -> Graph:
    """n0 = tanh(i0) on 8x16."""
    sketch = Sketch()
    x = sketch.input(8, 16)
    return sketch.graph(sketch.op("tanh", [x], (8, 16)), annotations=annotations)


def fork(*annotations: Annotation) -> Graph:
    """n0 = tanh(i0), read by n1 = abs and n2 = negate; 8x16."""
    sketch = Sketch()
    made = sketch.op("tanh", [sketch.input(8, 16)], (8, 16))
    both = [sketch.op(op, [made], (8, 16)) for op in ("abs", "negate")]
    return sketch.graph(*both, annotations=annotations)


def addition(*annotations: Annotation) -> Graph:
    """n0 = i0 + i1 on 8x16."""
    sketch = Sketch()
    operands = [sketch.input(8, 16), sketch.input(8, 16)]
    return sketch.graph(sketch.op("add", operands, (8, 16)), annotations=annotations)


def product(*annotations: Annotation) -> Graph:
    """n0 = i0 . i1, 2x16x8 . 2x8x32."""
    sketch = Sketch()
    operands = [sketch.input(2, 16, 8), sketch.input(2, 8, 32)]
    return sketch.graph(sketch.op("matmul", operands, (2, 16, 32)), annotations=annotations)


def mlp(*annotations: Annotation) -> Graph:
    """n3 = max(i0 . i1, 0) . i2: 2x4x8 . 8x32 . 32x8; n0 the first product, n1 the constant, n2 the maximum."""
    sketch = Sketch()
    x, w1, w2 = sketch.input(2, 4, 8), sketch.input(8, 32), sketch.input(32, 8)
    hidden = sketch.op("matmul", [x, w1], (2, 4, 32))
    zero = sketch.op("full", [], (2, 4, 32), value=0.0)
    active = sketch.op("maximum", [hidden, zero], (2, 4, 32))
    return sketch.graph(sketch.op("matmul", [active, w2], (2, 4, 8)), annotations=annotations)


def materialized(graph: Graph, mesh: Mesh, completed: PropagatedShardings) -> Program:
    return materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh))


def written(program: Program) -> list[str]:
    """Return the instructions in order: ops by name, collectives with their operands."""
    return [
        f"{done.collective} of {done.operand}" if isinstance(done, Reshard) else done.op.op
        for done in program.instructions
    ]


def moves(program: Program) -> list[Kind]:
    return [done.collective.kind for done in program.instructions if isinstance(done, Reshard)]


def local(program: Program, value: str) -> tuple[int, ...]:
    held = program.values[value]
    return shard_shape(held.sharding, held.type.shape, program.mesh)


def chain(*annotations: Annotation) -> Graph:
    """i0 -> n0 -> n1 -> n2 -> n3 -> n4."""
    sketch = Sketch()
    value = sketch.input(8, 16)
    for op in ("tanh", "abs", "negate", "tanh", "abs"):
        value = sketch.op(op, [value], (8, 16))
    return sketch.graph(value, annotations=annotations)
