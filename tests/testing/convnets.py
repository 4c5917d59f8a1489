"""Graphs of convolutional networks on one image."""

from __future__ import annotations

from planner.ir.graph import Graph
from tests.testing.op_graph_builder import Sketch


def stack(size: int, channels: int) -> Graph:
    """Build two 3x3 convolutions, the second with stride 2, and a 3x3 max pool on 1 x 3 x size x size."""
    sketch = Sketch()
    made = _block(sketch, sketch.input(1, 3, size, size), channels)
    made = _block(sketch, made, 2 * channels, stride=2)
    side = (sketch.types[made].shape[2] - 1) // 2 + 1
    pooled = (1, 2 * channels, side, side)
    return sketch.graph(sketch.op("max_pool", [made], pooled, size=[3, 3], stride=[2, 2], padding=[1, 1]))


def unet(size: int, channels: int, levels: int = 2) -> Graph:
    """A U-Net (Ronneberger, Fischer, Brox, 2015) of so many levels on 1 x 3 x size x size.

    Every level: two 3x3 convolutions and a pool on the way down; a transposed convolution, what the level left on
    the way down beside it, and a 3x3 convolution on the way up.
    """
    sketch = Sketch()
    made, left = sketch.input(1, 3, size, size), []
    for level in range(levels):
        made = _block(sketch, _block(sketch, made, channels << level), channels << level)
        left.append(made)
        _, width, side, _ = sketch.types[made].shape
        made = sketch.op("max_pool", [made], (1, width, side // 2, side // 2), size=[2, 2], stride=[2, 2])
    made = _block(sketch, made, channels << levels)
    for level in reversed(range(levels)):
        made = _block(sketch, _beside(sketch, _wider(sketch, made), left[level]), channels << level)
    return sketch.graph(_convolved(sketch, made, 3, taps=1))


def _block(sketch: Sketch, x: str, filters: int, stride: int = 1) -> str:
    made = _convolved(sketch, x, filters, stride=stride)
    return sketch.op("relu", [made], sketch.types[made].shape)


def _convolved(sketch: Sketch, x: str, filters: int, taps: int = 3, stride: int = 1) -> str:
    _, channels, size, _ = sketch.types[x].shape
    side = (size - 1) // stride + 1
    weight, bias = (sketch.input(*shape, kind="parameter") for shape in ((filters, channels, taps, taps), (filters,)))
    made, attrs = (1, filters, side, side), {"stride": [stride] * 2, "padding": [taps // 2] * 2}
    return sketch.op("convolution", [x, weight, bias], made, **attrs)


def _wider(sketch: Sketch, x: str) -> str:
    _, channels, size, _ = sketch.types[x].shape
    weight = sketch.input(channels, channels // 2, 2, 2, kind="parameter")
    return sketch.op("convolution_transpose", [x, weight], (1, channels // 2, 2 * size, 2 * size), stride=[2, 2])


def _beside(sketch: Sketch, x: str, other: str) -> str:
    shapes = [sketch.types[name].shape for name in (x, other)]
    joined = (1, shapes[0][1] + shapes[1][1], *shapes[0][2:])
    return sketch.op("concat", [x, other], joined, dim=1)
