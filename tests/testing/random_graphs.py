"""Random annotated graphs on random meshes, for tests of propagation and partition.

Ops are elementwise, products (batched or not), reductions of every kind in the op table, transposes, reshapes,
softmax-like and constants, of floats or integers; sizes are uneven. Annotations are of definitions and of uses,
required and hints. Some are partial: most results as their op leaves them, some as no op could; graph inputs by any
reduction that their elements have. With `halos`, annotations also have halos, or block boundaries other than the block
rule's, as far as the neighbours' blocks reach.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from planner.ir.graph import OUTPUTS, Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from tests.testing.layout_oracle import block
from tests.testing.op_graph_builder import Shape, Sketch

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12)
AXES = (1, 2, 2, 2, 3, 3, 4, 5)
MOST_DEVICES = 16
UNARY = ("negate", "relu", "square", "identity", "tanh")
BINARY = ("add", "add", "subtract", "multiply", "maximum", "minimum")
REDUCE = {
    "sum": Reduction.SUM,
    "max": Reduction.MAX,
    "min": Reduction.MIN,
    "product": Reduction.PRODUCT,
    "mean": Reduction.SUM,
}
WHOLE = ("cumsum", "softmax")
MAKES_PARTIAL = REDUCE | {"matmul": Reduction.SUM}
INTEGERS, DEFINED, USED, REQUIRED, PARTIAL, ODD, TERMS = 0.2, 0.3, 0.15, 0.6, 0.6, 0.03, 0.15
HALO, OFFSETS, WIDEST = 0.3, 0.15, 3


def random_mesh(random: Random) -> Mesh:
    """Return a mesh of 1 to 4 axes and at most 16 devices."""
    sizes = [random.choice(AXES) for _ in range(random.randint(1, 4))]
    while Mesh.parse(text := "x".join(map(str, sizes))).devices > MOST_DEVICES:
        sizes[random.randrange(len(sizes))] = random.choice((1, 2))
    return Mesh.parse(text)


def random_graph(seed: int, halos: bool = False) -> tuple[Graph, Mesh]:
    """An annotated graph all of whose op results are read, and its mesh; with `halos`, some annotations have halos or
    offsets."""
    random = Random(seed)
    mesh, grown = random_mesh(random), GrowingGraph(random)
    for _ in range(random.randint(2, 9)):
        grown.step()
    graph = grown.graph(mesh)
    return (with_cuts(graph, mesh, Random(f"cuts {seed}")) if halos else graph), mesh


def with_cuts(graph: Graph, mesh: Mesh, random: Random) -> Graph:
    """Return the graph with halos or offsets in some annotations; equal annotations of a value stay equal."""
    cut: dict[tuple[str, Sharding], Sharding] = {}
    for one in graph.annotations:
        if (one.value, one.sharding) not in cut:
            cut[one.value, one.sharding] = _cut(one.sharding, graph.types[one.value].shape, mesh, random)
    return replace(graph, annotations=tuple(replace(a, sharding=cut[a.value, a.sharding]) for a in graph.annotations))


def _cut(sharding: Sharding, shape: Shape, mesh: Mesh, random: Random) -> Sharding:
    """Return the sharding with halos that every neighbour's block can fill, with offsets, or unchanged."""
    chance = random.random()
    split = [
        (shape[dim], math.prod(mesh.shape[axis] for axis in sharding.split_axes[dim])) for dim in sharding.split_dims
    ]
    if not split or chance > HALO + OFFSETS:
        return sharding
    if chance < OFFSETS:
        cuts = [(0, *sorted(random.randint(0, size) for _ in range(parts - 1)), size) for size, parts in split]
        return replace(sharding, sharded_dims_offsets=tuple(cuts))
    sizes = [size for each in split for size in _halo(*each, random)]
    return replace(sharding, halo_sizes=tuple(sizes))


def _halo(size: int, parts: int, random: Random) -> tuple[int, int]:
    """Return halo widths before and after, no wider than the smallest block on the other side of a border."""
    blocks = [held.stop - held.start for held in (block(size, parts, index) for index in range(parts))]
    most = min(blocks[:-1], default=0), min(blocks[1:], default=0)
    return random.randint(0, min(most[0], WIDEST)), random.randint(0, min(most[1], WIDEST))


class GrowingGraph(Sketch):
    """A graph that grows by random ops."""

    def __init__(self, random: Random) -> None:
        self.random, self.integers = random, random.random() < INTEGERS
        super().__init__("i64" if self.integers else "f32")
        for _ in range(2):
            self.input(*(random.choice(SIZES) for _ in range(random.randint(1, 3))))

    def step(self) -> None:
        """Add one more op, mostly on the latest values."""
        values = list(self.types)
        x = self.random.choice(values[-2:] if self.random.random() < 0.7 else values)
        kinds = [self.unary, self.binary, self.binary, self.product, self.product, self.reduce, self.whole]
        kinds += [self.transpose, self.reshape, self.constant]
        self.random.choice(kinds)(x, self.types[x].shape)

    def one(self, ops: tuple[str, ...]) -> str:
        """Pick one of these ops; the last one listed only for floats."""
        return self.random.choice(ops[:-1] if self.integers else ops)

    def unary(self, x: str, shape: Shape) -> None:
        self.op(self.one(UNARY), [x], shape)

    def binary(self, x: str, shape: Shape) -> None:
        """Add a binary op with a value of the same shape, or one that broadcasts."""
        alike = [value for value, kind in self.types.items() if kind.shape == shape]
        other = self.random.choice(alike)
        if self.random.random() < 0.4:
            other = self.input(*(self.random.choice((size, size, 1)) for size in shape[self.random.randrange(2) :]))
        operands = [x, other] if self.random.random() < 0.5 else [other, x]
        self.op(self.random.choice(BINARY), operands, shape)

    def product(self, x: str, shape: Shape) -> None:
        if len(shape) < 2:
            return self.unary(x, shape)
        batch = shape[:-2] if self.random.random() < 0.5 else ()
        known = (*batch, shape[-1])
        alike = [value for value, kind in self.types.items() if kind.shape[:-1] == known]
        other = self.random.choice(alike) if alike else self.input(*known, self.random.choice(SIZES))
        self.op("matmul", [x, other], (*shape[:-1], self.types[other].shape[-1]))
        return None

    def reduce(self, x: str, shape: Shape) -> None:
        if not shape:
            return self.unary(x, shape)
        dims = sorted(self.random.sample(range(len(shape)), self.random.randint(1, len(shape))))
        keep = self.random.random() < 0.4
        kept = tuple(1 if dim in dims else size for dim, size in enumerate(shape) if keep or dim not in dims)
        self.op(self.one(tuple(REDUCE)), [x], kept, dims=dims, keepdim=keep)
        return None

    def whole(self, x: str, shape: Shape) -> None:
        if not shape:
            return self.unary(x, shape)
        self.op(self.one(WHOLE), [x], shape, dim=self.random.randrange(len(shape)))
        return None

    def transpose(self, x: str, shape: Shape) -> None:
        order = self.random.sample(range(len(shape)), len(shape))
        self.op("transpose", [x], tuple(shape[dim] for dim in order), permutation=order)

    def reshape(self, x: str, shape: Shape) -> None:
        """Add a reshape that merges two neighbouring dims or splits one."""
        at = self.random.randrange(max(len(shape), 1))
        if len(shape) > 1 and self.random.random() < 0.5:
            at = min(at, len(shape) - 2)
            made: Shape = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
        else:
            size = shape[at] if shape else 1
            part = self.random.choice([n for n in range(1, size + 1) if size % n == 0])
            made = (*shape[:at], part, size // part, *shape[at + 1 :])
        self.op("reshape", [x], made)

    def constant(self, x: str, shape: Shape) -> None:
        self.op(self.random.choice(BINARY), [x, self.op("full", [], shape, value=2)], shape)

    def graph(self, mesh: Mesh) -> Graph:  # type: ignore[override]
        read = {value for op in self.ops for value in op.inputs}
        outputs = [op.id for op in self.ops if op.id not in read]
        outputs.append(self.random.choice(list(self.types)))
        outputs = list(dict.fromkeys(outputs))
        return super().graph(*outputs, annotations=self.annotations(outputs, mesh))

    def annotations(self, outputs: list[str], mesh: Mesh) -> tuple[Annotation, ...]:
        found = []
        makers = {op.id: op.op for op in self.ops}
        for value in self.types:
            if self.random.random() < DEFINED:
                kind = MAKES_PARTIAL.get(makers[value]) if value in makers else self.terms()
                found.append(self.annotation(value, None, mesh, kind))
        uses = [(value, op.id) for op in self.ops for value in op.inputs] + [(value, OUTPUTS) for value in outputs]
        for value, user in dict.fromkeys(uses):
            if self.random.random() < USED:
                found.append(self.annotation(value, user, mesh, None))
        return tuple(found)

    def terms(self) -> Reduction | None:
        """Return the reduction of a partial graph input, None for one that is whole."""
        kinds = [kind for kind in Reduction if kind.dtype_error(self.dtype) is None]
        return self.random.choice(kinds) if self.random.random() < TERMS else None

    def annotation(self, value: str, user: str | None, mesh: Mesh, kind: Reduction | None) -> Annotation:
        """Return an annotation whose axes split a dim, are partial or idle; trailing empty lists may be omitted."""
        if self.random.random() < ODD:
            kind = self.random.choice([kind for kind in Reduction if kind.dtype_error(self.dtype) is None])
        rank, partial = len(self.types[value].shape), list[int]()
        lists: list[list[int]] = [[] for _ in range(rank)]
        for axis in self.random.sample(range(len(mesh.axes)), len(mesh.axes)):
            if kind is not None and self.random.random() < PARTIAL:
                partial.append(axis)
            elif rank and self.random.random() < 0.6:
                self.random.choice(lists).append(axis)
        while lists and not lists[-1] and self.random.random() < 0.5:
            lists.pop()
        sharding = Sharding(tuple(map(tuple, lists)), tuple(partial), kind or Reduction.SUM)
        return Annotation(value, sharding, self.random.random() < REQUIRED, user)
