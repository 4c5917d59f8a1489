"""Rules for complex calls: which real calls compute the parts of the result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch.fx import Node

from planner.frontends.torch import fourier
from planner.frontends.torch.complex_parts import ATEN, Pair, Parts, Rule, read_parts


def _pair(value: Any) -> Pair:
    """Return a complex value, or a real one as a pair whose imaginary part is 0."""
    if isinstance(value, Pair):
        return value
    return Pair(value.real, value.imag) if isinstance(value, complex) else Pair(value, 0)


def _join(parts: Parts, z: Any) -> Any:
    return parts.call(ATEN.stack.default, list(z), -1)


def _polar(parts: Parts, length: Any, angle: Any) -> Pair:
    turned = (parts.call(function, angle) for function in (ATEN.cos.default, ATEN.sin.default))
    return Pair(*(parts.multiply(length, each) for each in turned))


def _multiply(parts: Parts, z: Any, w: Any) -> Pair:
    if isinstance(z, Node) and isinstance(w, complex):
        return Pair(parts.multiply(z, w.real), parts.multiply(z, w.imag))
    return _combine(parts, z, w, by=parts.multiply)


def _combine(parts: Parts, z: Any, w: Any, *, by: Callable[[Any, Any], Any]) -> Pair:
    """Return a product: (a + bi) (c + di) = ac - bd + (ad + bc) i, one of them maybe real."""
    if isinstance(z, complex) or isinstance(w, complex):
        z, w = (_pair(each) if isinstance(each, complex) else each for each in (z, w))
    if not isinstance(w, Pair):
        return Pair(*(by(each, w) for each in z))
    if not isinstance(z, Pair):
        return Pair(*(by(z, each) for each in w))
    real = parts.call(ATEN.sub.Tensor, by(z.real, w.real), by(z.imag, w.imag))
    return Pair(real, parts.add(by(z.real, w.imag), by(z.imag, w.real)))


def _matrix_product(parts: Parts, z: Any, w: Any, bias: Any = None) -> Pair:
    product = _combine(parts, z, w, by=partial(parts.call, parts.node.target))
    return product if bias is None else _sum(ATEN.add.Tensor)(parts, product, bias)


def _contract(parts: Parts, equation: str, operands: Sequence[Any]) -> Pair:
    """Contract one or two operands."""
    call = partial(parts.call, parts.node.target, equation)
    if len(operands) == 1:
        return Pair(*(call([each]) for each in operands[0]))
    z, w = operands
    return _combine(parts, z, w, by=lambda x, y: call([x, y]))


def _divide(parts: Parts, z: Any, w: Any) -> Pair:
    if isinstance(w, complex):
        return _multiply(parts, z, 1 / w)
    if not isinstance(w, Pair):
        return Pair(*(parts.call(ATEN.div.Tensor, each, w) for each in z))
    return Pair(
        *(parts.call(ATEN.div.Tensor, each, _square(parts, w)) for each in _multiply(parts, z, _conjugate(parts, w)))
    )


def _power(parts: Parts, z: Pair, exponent: Any) -> Pair:
    """A power by a small whole number."""
    if exponent not in range(1, 5):
        raise ValueError(exponent)
    power = z
    for _ in range(int(exponent) - 1):
        power = _multiply(parts, power, z)
    return power


def _square(parts: Parts, z: Pair) -> Any:
    return parts.add(*(parts.multiply(each, each) for each in z))


def _length(parts: Parts, z: Pair) -> Any:
    """Return the absolute value, whose gradient at 0 is 0, as torch's is."""
    square = _square(parts, z)
    zero = parts.call(ATEN.eq.Scalar, square, 0)
    root = parts.call(ATEN.sqrt.default, parts.call(ATEN.masked_fill.Scalar, square, zero, 1))
    return parts.call(ATEN.masked_fill.Scalar, root, zero, 0)


def _angle(parts: Parts, z: Pair) -> Any:
    return parts.call(ATEN.atan2.default, z.imag, z.real)


def _sum(target: Any) -> Rule:
    """Return the rule of a sum or a difference with a complex or a real operand."""

    def rule(parts: Parts, z: Any, w: Any, *, alpha: float = 1) -> Pair:
        (a, b), (c, d) = _pair(z), _pair(w)
        if not isinstance(b, Node) and b == 0:
            b = parts.call(ATEN.zeros_like.default, a)
        return Pair(parts.call(target, a, c, alpha=alpha), parts.call(target, b, d, alpha=alpha))

    return rule


def _conjugate(parts: Parts, z: Pair) -> Pair:
    return Pair(z.real, parts.negate(z.imag))


def _exponential(parts: Parts, z: Pair) -> Pair:
    return _polar(parts, parts.call(ATEN.exp.default, z.real), z.imag)


def _cast(parts: Parts, z: Any, *rest: Any, **named: Any) -> Any:
    """Cast to the dtype of the result; a real one has no imaginary part."""
    dtype = parts.node.meta["val"].dtype
    real, imag = _pair(z)
    if not dtype.is_complex:
        return parts.call(ATEN.to.dtype, real, dtype)
    imag = imag if isinstance(imag, Node) else parts.call(ATEN.zeros_like.default, real)
    return Pair(*(parts.call(ATEN.to.dtype, each, dtype.to_real()) for each in (real, imag)))


def _make(parts: Parts, *args: Any, dtype: Any = None, **named: Any) -> Any:
    """Make a tensor that holds real numbers."""
    dtype = parts.node.meta["val"].dtype
    given = [each.real if isinstance(each, Pair) else each for each in args]
    real = parts.call(parts.node.target, *given, dtype=dtype.to_real() if dtype.is_complex else dtype, **named)
    return Pair(real, parts.call(ATEN.zeros_like.default, real)) if dtype.is_complex else real


def _apart(target: Any, number: int | None = None) -> Rule:
    """Return the rule of a call that treats both parts alike, such as a view; argument `number` may be a number."""

    def rule(parts: Parts, *args: Any, **kwargs: Any) -> Pair:
        sides = [[_side(parts, each, side) for each in args] for side in (0, 1)]
        if number is not None and len(args) > number:
            for side, listed in enumerate(sides):
                listed[number] = _pair(args[number] or 0)[side]
        return Pair(*(parts.call(target, *each, **kwargs) for each in sides))

    return rule


def _side(parts: Parts, argument: Any, side: int) -> Any:
    """Return one part of an argument; the imaginary part of a real tensor is zero, but of positions and masks."""
    if isinstance(argument, Pair):
        return argument[side]
    if isinstance(argument, list):
        return [_side(parts, each, side) for each in argument]
    if not isinstance(argument, Node) or not argument.meta["val"].is_floating_point():
        return argument
    return parts.call(ATEN.zeros_like.default, argument) if side else argument


def _join_values(target: Any, first: int = 0) -> Rule:
    """Return the rule of a call whose arguments from `first` on are values, also where they are whole numbers."""

    def rule(parts: Parts, *args: Any, **kwargs: Any) -> Pair:
        for each in args[first] if isinstance(args[first], list) else args[first:]:
            if not isinstance(each, Pair) and not (isinstance(each, Node) and each.meta["val"].is_floating_point()):
                raise TypeError(each)
        pair: Pair = _apart(target)(parts, *args, **kwargs)
        return pair

    return rule


ALIKE = (
    "alias.default broadcast_to.default chunk.default clone.default contiguous.default cumsum.default detach.default "
    "diagonal.default expand.default expand_as.default fft_fftshift.default fft_ifftshift.default "
    "flatten.using_ints flip.default gather.default index.Tensor index_put.default index_select.default "
    "lift_fresh_copy.default mT.default mean.default mean.dim movedim.int narrow.default neg.default numpy_T.default "
    "permute.default repeat.default reshape.default reshape_as.default roll.default select.int select_scatter.default "
    "slice.Tensor slice_scatter.default split.Tensor split_with_sizes.default squeeze.default squeeze.dim squeeze.dims "
    "sum.default sum.dim_IntList swapaxes.default t.default transpose.int tril.default triu.default unbind.int "
    "unflatten.int unsqueeze.default view.default view_as.default"
)
WITH_NUMBERS = {"constant_pad_nd.default": 2, "masked_fill.Scalar": 2, "pad.default": 3, "fill.Scalar": 1}
"""Calls that write a number, and its argument."""
MAKERS = (
    "empty.memory_format empty_like.default eye.default new_ones.default new_zeros.default ones.default "
    "ones_like.default zeros.default zeros_like.default"
)


def _find_overload(name: str) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(ATEN, packet), overload)


RULES: Mapping[Any, Rule] = {
    ATEN.view_as_complex.default: read_parts,
    ATEN.view_as_real.default: _join,
    ATEN.complex.default: lambda parts, real, imag: Pair(real, imag),
    ATEN.polar.default: _polar,
    ATEN.mul.Tensor: _multiply,
    ATEN.div.Tensor: _divide,
    ATEN.reciprocal.default: lambda parts, z: _divide(parts, 1.0, z),
    ATEN.pow.Tensor_Scalar: _power,
    ATEN.square.default: lambda parts, z: _multiply(parts, z, z),
    ATEN.add.Tensor: _sum(ATEN.add.Tensor),
    ATEN.sub.Tensor: _sum(ATEN.sub.Tensor),
    ATEN.exp.default: _exponential,
    ATEN.abs.default: _length,
    ATEN.angle.default: _angle,
    ATEN.log.default: lambda parts, z: Pair(parts.call(ATEN.log.default, _length(parts, z)), _angle(parts, z)),
    ATEN.real.default: lambda parts, z: z.real,
    ATEN.imag.default: lambda parts, z: z.imag,
    ATEN.conj.default: _conjugate,
    ATEN._conj.default: _conjugate,
    ATEN.conj_physical.default: _conjugate,
    **dict.fromkeys(
        (ATEN.mH.default, ATEN.adjoint.default), lambda parts, z: _apart(ATEN.mT.default)(parts, _conjugate(parts, z))
    ),
    ATEN.resolve_conj.default: lambda parts, z: z,
    ATEN.to.dtype: _cast,
    ATEN._to_copy.default: _cast,
    ATEN.einsum.default: _contract,
    operator.getitem: _apart(operator.getitem),
    **fourier.RULES,
    **dict.fromkeys(
        map(_find_overload, ("matmul.default", "mm.default", "bmm.default", "linear.default")), _matrix_product
    ),
    **{overload: _apart(overload) for overload in map(_find_overload, ALIKE.split())},
    **{_find_overload(name): _apart(_find_overload(name), place) for name, place in WITH_NUMBERS.items()},
    **dict.fromkeys(map(_find_overload, MAKERS.split()), _make),
    ATEN.cat.default: _join_values(ATEN.cat.default),
    ATEN.stack.default: _join_values(ATEN.stack.default),
    ATEN.where.self: _join_values(ATEN.where.self, 1),
}
