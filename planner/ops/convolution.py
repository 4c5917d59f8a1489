"""Convolutions over any number of spatial dims, channels before them as in PyTorch.

    y[n, g f, i]  = sum_{c, r} x[n, g c, s i + d r - p] w[g f, c, r]  (+ bias[g f])     s stride, d dilation, p padding
    dw[g f, c, r] = sum_{n, i} x[n, g c, s i + d r - p] dy[n, g f, i]
    dx[n, g c, j] = sum_{f, r} dy[n, g f, (j + p - d r) / s] w[g f, c, r]               where s divides: the transpose

An operand's spatial dims are windows: the executor cuts and pads what a device reads of them before it calls the array
function, which therefore sees a convolution without padding. The transpose reads windows too: with j = s q + t it reads
dy at q + e, where e = (t + p - d r) / s takes the whole numbers of an interval, and q splits a dim of s q elements
evenly. (A dim that s does not divide is not split.) All three are sums of matrix products over the kernel's taps.

V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from planner.errors import InvalidGraph
from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, float_dtype

STRIDE = Attribute("stride", types.whole_numbers(1), (1,))
PADDING = Attribute("padding", types.whole_numbers(0), (0,))
DILATION = Attribute("dilation", types.whole_numbers(1), (1,))
WINDOW_ATTRS = (STRIDE, PADDING, DILATION)
"""Each lists one number per spatial dim; the default holds for every dim."""
GROUPS = Attribute("groups", types.whole_number(1), 1)
ATTRS = (*WINDOW_ATTRS, GROUPS)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Stride, padding (the same before and after) and dilation along one spatial dim."""

    stride: int
    padding: int
    dilation: int

    def window(self, out: str, tap: str) -> str:
        padding = f"-{self.padding}" if self.padding else ""
        return f"({self.stride}*{out}+{self.dilation}*{tap}{padding})"

    def positions(self, size: int, taps: int) -> int:
        """Count the positions of a kernel of `taps` elements in a dim of this size."""
        return (size + 2 * self.padding - self.dilation * (taps - 1) - 1) // self.stride + 1

    def sources(self, taps: int) -> dict[tuple[int, int], int]:
        """Return e of the transpose by (t, r), for those pairs where it is a whole number."""
        reach = {(t, r): t + self.padding - self.dilation * r for t in range(self.stride) for r in range(taps)}
        return {place: far // self.stride for place, far in reach.items() if far % self.stride == 0}

    def interval(self, taps: int) -> tuple[int, int]:
        """Return the smallest interval that holds 0 and every e of the transpose."""
        offsets = self.sources(taps).values()
        return min((0, *offsets)), max((0, *offsets))


def parse_geometry(attrs: Mapping[str, Any], rank: int) -> list[Geometry]:
    """Return the geometry of each spatial dim. Raises InvalidGraph for a list of another length than `rank`."""
    columns = []
    for attribute in WINDOW_ATTRS:
        numbers = attribute.read(attrs)
        numbers = numbers if attribute.name in attrs else numbers * rank
        if len(numbers) != rank:
            wanted = f"{rank} numbers, one a spatial dim"
            raise InvalidGraph(f"attribute {attribute.name!r}", got=list(numbers), wanted=wanted)
        columns.append(numbers)
    return [Geometry(*each) for each in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class _ConvolutionTerms:
    """The rule's terms, for x [n, channels, ...] and a weight [filters, channels per group, taps ...]."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    result: tuple[int, ...]
    geometry: list[Geometry]
    groups: int

    @classmethod
    def of(
        cls, signature: OpSignature, x: tuple[int, ...], weight: tuple[int, ...], made: tuple[int, ...]
    ) -> _ConvolutionTerms:
        """Check that these are the shapes of one convolution. Raises InvalidGraph."""
        rank, groups = len(x) - 2, signature.read(GROUPS)
        if rank < 1 or not len(x) == len(weight) == len(made):
            raise InvalidGraph("rank", got=[len(x), len(weight), len(made)], wanted="one rank, 3 or more")
        geometry = parse_geometry(signature.attrs, rank)
        if x[1] != groups * weight[1] or weight[0] % groups:
            wanted = "as many times the weight's channels as x has, dividing its filters"
            raise InvalidGraph("attribute 'groups'", got=groups, wanted=wanted)
        check_positions(geometry, x[2:], weight[2:], made=made[2:])
        return cls(x, weight, made, geometry, groups)

    @property
    def group(self) -> str:
        return "g " if self.groups > 1 else ""

    @property
    def filters(self) -> str:
        """Return the dim of all filters, in the weight, the result and the bias."""
        return f"({self.group}f)"

    @property
    def channels(self) -> str:
        return f"({self.group}c)"

    def taps(self) -> str:
        return f"{self.filters} c {name_each('r', len(self.geometry))}"

    def windows(self) -> str:
        spatial = [each.window(f"y{i}", f"r{i}") for i, each in enumerate(self.geometry)]
        return f"n {self.channels} {' '.join(spatial)}"

    def outputs(self) -> str:
        return f"n {self.filters} {name_each('y', len(self.geometry))}"


def name_each(loop: str, rank: int) -> str:
    return " ".join(f"{loop}{i}" for i in range(rank))


def check_positions(
    geometry: list[Geometry], sizes: Sequence[int], taps: Sequence[int], *, made: Sequence[int]
) -> None:
    wanted = [each.positions(size, r) for each, size, r in zip(geometry, sizes, taps, strict=True)]
    if list(made) != wanted or min(wanted) < 1:
        raise InvalidGraph("spatial dims of a convolution", got=list(made), wanted=f"{wanted}, and 1 or more")


def _forward_rule(signature: OpSignature) -> str:
    """Return the rule of (x, weight) or (x, weight, bias) -> y."""
    x, weight, *bias = (kind.shape for kind in signature.operands)
    rule = _ConvolutionTerms.of(signature, x, weight, signature.results[0].shape)
    term, linear = (f", {rule.filters}", "0+2, 1+2") if bias else ("", "0, 1")
    return f"{rule.windows()}, {rule.taps()}{term} -> {rule.outputs()}; linear {linear}"


def _weight_rule(signature: OpSignature) -> str:
    """Return the rule of (x, dy) -> dw."""
    x, made = (kind.shape for kind in signature.operands)
    rule = _ConvolutionTerms.of(signature, x, signature.results[0].shape, made)
    return f"{rule.windows()}, {rule.outputs()} -> {rule.taps()}; linear 0, 1"


def _transpose_rule(signature: OpSignature) -> str:
    """Return the rule of (dy, weight) -> dx."""
    made, weight = (kind.shape for kind in signature.operands)
    x = signature.results[0].shape
    rule = _ConvolutionTerms.of(signature, x, weight, made)
    read, left, sizes, whole = [], [], [], [name_each("r", len(rule.geometry))]
    for i, (each, size, taps) in enumerate(zip(rule.geometry, x[2:], weight[2:], strict=True)):
        # The gradient of a strided convolution is a window over dy for each residue t of the position.
        first, last = each.interval(taps)
        read.append(f"(y{i}+e{i}-{-first})")
        sizes += [f"e{i}={last - first + 1}", f"y{i}={-(-size // each.stride)}"]
        if size % each.stride:
            left.append(f"x{i}")
            whole += [f"x{i}", f"y{i}"]
        else:
            left.append(f"(y{i} t{i})")
            sizes.append(f"t{i}={each.stride}")
    terms = f"n {rule.filters} {' '.join(read)}, {rule.taps()} -> n {rule.channels} {' '.join(left)}"
    return f"{terms}; size {' '.join(sizes)}; blocked {' '.join(whole)}; linear 0, 1"


def kernel_taps(local: OpContext, x: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield each tap of the kernel with the elements of x that it reads, one per position."""
    rank = sum(loop[0] == "r" for loop in local.spans)
    geometry = parse_geometry(local.attrs, rank)
    counts = [loop_length(local, f"y{i}") for i in range(rank)]
    for taps in product(*(range(loop_length(local, f"r{i}")) for i in range(rank))):
        starts = [each.dilation * tap for each, tap in zip(geometry, taps, strict=True)]
        ends = zip(starts, counts, geometry, strict=True)
        yield taps, x[(..., *(slice(at, at + each.stride * count, each.stride) for at, count, each in ends))]


def loop_length(local: OpContext, loop: str) -> int:
    return local.spans[loop].length if loop in local.spans else 1


def _grouped(local: OpContext, array: Array, loop: str) -> Array:
    """Reshape to [n, groups, channels or filters, positions]."""
    positions = math.prod(array.shape[2:])
    return array.reshape(array.shape[0], loop_length(local, "g"), loop_length(local, loop), positions)


def _kernel(local: OpContext, weight: Array) -> Array:
    """Reshape a weight to [groups, filters, channels, taps ...]."""
    return weight.reshape(loop_length(local, "g"), loop_length(local, "f"), *weight.shape[1:])


def _forward(local: OpContext, x: Array, weight: Array, bias: Array | None = None) -> Array:
    kernel, made = _kernel(local, weight), local.xp.zeros((), x.dtype)
    for taps, read in kernel_taps(local, x):
        made = made + kernel[(..., *taps)] @ _grouped(local, read, "c")
    made = made.reshape(local.shapes[0])
    first = _adds_bias(local, "c")
    return made if bias is None or not first else made + bias.reshape(-1, *(1,) * (x.ndim - 2))


def _adds_bias(local: OpContext, loop: str) -> bool:
    """Return whether this device holds the start of the reduction loop; only that device adds the bias."""
    return loop not in local.spans or local.spans[loop].start == 0


def _weight_backward(local: OpContext, x: Array, dy: Array) -> Array:
    filters = _grouped(local, dy, "f")
    made = local.xp.empty(_kernel(local, local.xp.empty(local.shapes[0])).shape, x.dtype)
    for taps, read in kernel_taps(local, x):
        made[(..., *taps)] = (filters @ _grouped(local, read, "c").swapaxes(-1, -2)).sum(axis=0)
    return made.reshape(local.shapes[0])


def _transpose(local: OpContext, dy: Array, weight: Array) -> Array:
    geometry = parse_geometry(local.attrs, dy.ndim - 2)
    kernel = _kernel(local, weight).swapaxes(1, 2)
    counts = [loop_length(local, f"y{i}") for i in range(len(geometry))]
    made = local.xp.zeros((dy.shape[0], *kernel.shape[:2], *_pairs(counts, [g.stride for g in geometry])), dy.dtype)
    sources = [each.sources(taps).items() for each, taps in zip(geometry, weight.shape[2:], strict=True)]
    firsts = [each.interval(taps)[0] for each, taps in zip(geometry, weight.shape[2:], strict=True)]
    for chosen in product(*sources):
        taps = tuple(tap for (_, tap), _ in chosen)
        begins = [source - first for (_, source), first in zip(chosen, firsts, strict=True)]
        read = dy[(..., *(slice(at, at + count) for at, count in zip(begins, counts, strict=True)))]
        step = (kernel[(..., *taps)] @ _grouped(local, read, "f")).reshape(*made.shape[:3], *counts)
        places = (..., *_pairs([slice(None)] * len(counts), [at for (at, _), _ in chosen]))
        made[places] = made[places] + step
    sizes = [count * each.stride for count, each in zip(counts, geometry, strict=True)]
    whole = made.reshape(dy.shape[0], kernel.shape[0] * kernel.shape[1], *sizes)
    return whole[tuple(map(slice, local.shapes[0]))]


def _pairs(one: Sequence[Any], other: Sequence[Any]) -> Iterator[Any]:
    return chain.from_iterable(zip(one, other, strict=True))


def _flops(sizes: Mapping[str, int]) -> float:
    """Count two operations per product. Loops e, t and x of a transpose only place elements: they multiply nothing."""
    return 2 * math.prod(size for loop, size in sizes.items() if loop[0] not in "etx")


OP_DEFS = (
    OpDef("convolution", _forward_rule, _forward, _flops, float_dtype, attrs=ATTRS),
    OpDef("convolution_transpose", _transpose_rule, _transpose, _flops, float_dtype, attrs=ATTRS),
    OpDef("convolution_weight_backward", _weight_rule, _weight_backward, _flops, float_dtype, attrs=ATTRS),
)
