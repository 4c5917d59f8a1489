"""Fourier transforms: the calls of torch.fft become the op `fft` of `custom_ops`, which transforms whole dims of pairs.

Where the operand is real, the result keeps the first half of the last dim. Where the result is real, the operand is
such a half; its other half are the conjugates, so that the result is twice the real part of what the half gives. The
elements that are their own conjugates count once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from planner.frontends.torch.complex_parts import ATEN, Pair, Parts, Rule
from planner.frontends.torch.custom_ops import OPS

NORMS = ("backward", "ortho", "forward")
"""Which transforms are divided: inverse ones, all by the root of the number of elements, or forward ones."""
Sizes = Sequence[int | None]


class Transform(NamedTuple):
    """A transform over dims.

    inverse  whether the sign of the exponent is +
    divisor  power of the number of elements by which the result is divided: 0, 0.5 or 1
    """

    dims: Sequence[int]
    inverse: bool
    divisor: float

    def of_complex(self, parts: Parts, x: Any, sizes: Sizes) -> Pair:
        """Transform a pair or a real node, cut or padded to `sizes` (None: as it is)."""
        return self._apply(parts, _resize(parts, x, self.dims, sizes=sizes))

    def of_real(self, parts: Parts, x: Any, sizes: Sizes) -> Pair:
        """Transform a real node; return the first half of the last dim, and the element in the middle."""
        x, last = _resize(parts, x, self.dims, sizes=sizes), self.dims[-1]
        half = x.meta["val"].shape[last] // 2 + 1
        return Pair(*(parts.call(ATEN.slice.Tensor, each, last, 0, half) for each in self._apply(parts, x)))

    def to_real(self, parts: Parts, x: Any, sizes: Sizes) -> Any:
        """Transform the half of a pair whose other half are the conjugates; return a real node."""
        last, (*others, size) = self.dims[-1], sizes
        size = 2 * (_shape(x)[last] - 1) if size is None else size
        half = _resize(parts, x, self.dims, sizes=(*others, size // 2 + 1))
        weighted = _on_parts(half, lambda each: _weigh_twice(parts, each, last, size=size))
        return self._apply(parts, _resize(parts, weighted, [last], sizes=[size])).real

    def _apply(self, parts: Parts, x: Any) -> Pair:
        real, imag = x if isinstance(x, Pair) else (x, None)
        both = parts.call(OPS.fft.default, real, imag, list(self.dims), self.inverse)
        made = Pair(*(parts.call(operator.getitem, both, side) for side in (0, 1)))
        count = math.prod(_shape(x)[dim] for dim in self.dims)
        scale = float(count**-self.divisor)
        return Pair(*(parts.multiply(each, scale) for each in made)) if scale != 1 else made


def _shape(x: Any) -> Sequence[int]:
    shape: Sequence[int] = (x.real if isinstance(x, Pair) else x).meta["val"].shape
    return shape


def _on_parts(x: Any, change: Any) -> Any:
    """Apply a function to a real node, or to both parts of a pair."""
    return Pair(*map(change, x)) if isinstance(x, Pair) else change(x)


def _resize(parts: Parts, x: Any, dims: Sequence[int], *, sizes: Sizes) -> Any:
    """Cut dims at their end, or pad them with zeros."""
    shape = _shape(x)
    for dim, size in zip(dims, sizes, strict=True):
        if size is not None and size < shape[dim]:
            x = _on_parts(x, lambda each, dim=dim, size=size: parts.call(ATEN.slice.Tensor, each, dim, 0, size))
        elif size is not None and size > shape[dim]:
            pad = [0] * (2 * (len(shape) - dim) - 1) + [size - shape[dim]]
            x = _on_parts(x, lambda each, pad=pad: parts.call(ATEN.constant_pad_nd.default, each, pad))
    return x


def _weigh_twice(parts: Parts, x: Any, dim: int, *, size: int) -> Any:
    """Double the elements of the half of a dim that stand for a conjugate too, of `size` in all."""
    shape = _shape(x)
    twice = (size - 1) // 2
    behind = [1] * (len(shape) - dim - 1)
    weights = parts.call(ATEN.new_full.default, x, [twice, *behind], 2)
    ends = [0, 0] * len(behind) + [1, shape[dim] - 1 - twice]
    return parts.multiply(x, parts.call(ATEN.constant_pad_nd.default, weights, ends, 1))


def _read_call(kind: str, inverse: bool, default: Sequence[int] | None) -> Rule:
    """Return the rule of a call of torch.fft: `kind` is a method of `Transform`, `default` the dims of none given."""

    def rule(parts: Parts, x: Any, size: Any = None, dim: Any = None, norm: str | None = None, **named: Any) -> Any:
        size = named.get("n", named.get("s", size))
        rank = len(_shape(x))
        sizes = [size] if isinstance(size, int) else size
        dims = [dim] if isinstance(dim, int) else dim if dim is not None else default
        if dims is None:
            dims = range(rank) if sizes is None else range(rank - len(sizes), rank)
        wanted = [None] * len(dims) if sizes is None else [None if each == -1 else each for each in sizes]
        place = NORMS.index(norm or "backward")
        transform = Transform([each % rank for each in dims], inverse, (2 - place if inverse else place) / 2)
        real = isinstance(x, Pair) or x.meta["val"].is_floating_point()
        x = x if real else parts.call(ATEN.to.dtype, x, parts.node.meta["val"].dtype.to_real())
        return getattr(transform, kind)(parts, x, wanted)

    return rule


def _complex_to_complex(parts: Parts, z: Any, dim: Sequence[int], normalization: int, forward: bool) -> Pair:
    transform = Transform([each % len(_shape(z)) for each in dim], not forward, _divisor(normalization))
    return transform.of_complex(parts, z, [None] * len(dim))


def _real_to_complex(parts: Parts, x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Pair:
    transform = Transform([each % len(_shape(x)) for each in dim], False, _divisor(normalization))
    return (transform.of_real if onesided else transform.of_complex)(parts, x, [None] * len(dim))


def _complex_to_real(parts: Parts, z: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    transform = Transform([each % len(_shape(z)) for each in dim], True, _divisor(normalization))
    return transform.to_real(parts, z, [*[None] * (len(dim) - 1), last_dim_size])


def _divisor(normalization: int) -> float:
    """Return the power of the number of elements that torch's number for a normalization stands for."""
    return (0, 0.5, 1)[normalization]


KINDS = {
    "fft": ("of_complex", False),
    "ifft": ("of_complex", True),
    "rfft": ("of_real", False),
    "irfft": ("to_real", True),
    "hfft": ("to_real", False),
    "ihfft": ("of_real", True),
}
RULES: Mapping[Any, Rule] = {
    **{
        getattr(ATEN, f"fft_{name}{suffix}").default: _read_call(kind, inverse, dims)
        for name, (kind, inverse) in KINDS.items()
        for suffix, dims in (("", [-1]), ("2", [-2, -1]), ("n", None))
    },
    ATEN._fft_c2c.default: _complex_to_complex,
    ATEN._fft_r2c.default: _real_to_complex,
    ATEN._fft_c2r.default: _complex_to_real,
}
