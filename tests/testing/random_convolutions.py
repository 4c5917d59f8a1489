"""Random annotated graphs with convolutions, halos and offsets together, on random meshes.

Convolutions are of one or two spatial dims, strided, padded, dilated and grouped; between them stand elementwise ops.
Annotations, with halos and offsets in some, are those of `random_graphs`.
"""

from __future__ import annotations

from random import Random

from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from tests.testing.random_graphs import GrowingGraph, random_mesh, with_cuts

SIZES = (1, 3, 4, 5, 6, 8, 9, 12)


def random_convolutions(seed: int) -> tuple[Graph, Mesh]:
    """Return an annotated graph of one to three convolutions, and its mesh."""
    random = Random(f"convolutions {seed}")
    mesh, grown = random_mesh(random), _GrowingConvolutions(random)
    for _ in range(random.randint(1, 3)):
        grown.convolution()
        if random.random() < 0.5:
            grown.step()
    return with_cuts(grown.graph(mesh), mesh, Random(f"cuts {seed}")), mesh


class _GrowingConvolutions(GrowingGraph):
    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.dtype, self.integers = "f32", False
        self.inputs.clear()
        self.types.clear()
        spatial = [random.choice(SIZES) for _ in range(random.randint(1, 2))]
        self.image = self.input(random.randint(1, 3), random.choice((1, 2, 4)), *spatial)

    def convolution(self) -> None:
        """Add a convolution of the latest image."""
        draw, (batch, channels, *sizes) = self.random, self.types[self.image].shape
        groups = 2 if channels % 2 == 0 and draw.random() < 0.3 else 1
        made, taps = list[int](), list[int]()
        attrs: dict[str, list[int]] = {"stride": [], "padding": [], "dilation": []}
        for size in sizes:
            tap, stride, padding, dilation = (
                draw.randint(1, 3),
                draw.randint(1, 2),
                draw.randint(0, 3),
                draw.randint(1, 2),
            )
            if (whole := size + 2 * padding - dilation * (tap - 1)) < 1:
                tap, whole = 1, size + 2 * padding
            made.append((whole - 1) // stride + 1)
            taps.append(tap)
            for key, value in (("stride", stride), ("padding", padding), ("dilation", dilation)):
                attrs[key].append(value)
        filters = groups * draw.randint(1, 2)
        weight = self.input(filters, channels // groups, *taps)
        self.image = self.op("convolution", [self.image, weight], (batch, filters, *made), groups=groups, **attrs)

    def step(self) -> None:
        """Add an elementwise op."""
        shape = self.types[self.image].shape
        if self.random.random() < 0.5:
            self.unary(self.image, shape)
        else:
            self.binary(self.image, shape)
        self.image = self.ops[-1].id
