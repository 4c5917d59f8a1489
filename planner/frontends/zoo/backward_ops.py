"""Backward of every op that the families use: from the gradients of its results those of its operands.

A rule yields (operand, gradient) for the operands that are wanted. In products the gradient of a factor is the
product of the result's with the other factors, summed over the loops that the factor lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.ir.sharding import Shape

Gradients = Iterator[tuple[int, DocumentValue]]


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """A node of the forward pass, the gradients of its results, and which operands need a gradient."""

    w: ModelBuilder
    op: str
    attrs: Mapping[str, Any]
    operands: tuple[DocumentValue, ...]
    results: tuple[DocumentValue, ...]
    grads: tuple[DocumentValue, ...]
    wanted: frozenset[int]


def linear(b: BackwardCall) -> Gradients:
    """y = x weight^T."""
    (x, weight), (dy,) = b.operands, b.grads
    if 0 in b.wanted:
        yield 0, b.w.emit("matmul", [dy, weight], x.shape)
    if 1 in b.wanted:
        yield 1, _product_of_rows(b.w, dy, x)


def addmm(b: BackwardCall) -> Gradients:
    """y = bias + x weight."""
    (bias, x, weight), (dy,) = b.operands, b.grads
    if 1 in b.wanted:
        yield 1, b.w.emit("linear", [dy, weight], x.shape)
    if 2 in b.wanted:
        yield 2, _product_of_rows(b.w, x, dy)
    if 0 in b.wanted:
        yield 0, _sum_to_shape(b.w, dy, bias.shape)


def _product_of_rows(w: ModelBuilder, left: DocumentValue, right: DocumentValue) -> DocumentValue:
    """left^T right over all dims but the last, without flattening them: each may stay split."""
    rows = " ".join(f"r{i}" for i in range(len(left.shape) - 1))
    shape = [left.shape[-1], right.shape[-1]]
    return w.emit("einsum", [left, right], shape, equation=f"{rows} m, {rows} n -> m n")


def _sum_to_shape(w: ModelBuilder, value: DocumentValue, shape: Shape) -> DocumentValue:
    """Over the leading dims that a shape lacks."""
    extra = len(value.shape) - len(shape)
    return w.emit("sum", [value], shape, dims=list(range(extra))) if extra else value


def einsum(b: BackwardCall) -> Gradients:
    """Another product, with the gradient in the factor's place."""
    left, _, result = str(b.attrs["equation"]).partition("->")
    terms = [term.strip() for term in left.split(",")]
    for i in sorted(b.wanted):
        read = [result.strip(), *terms[:i], *terms[i + 1 :]]
        factors = [b.grads[0], *b.operands[:i], *b.operands[i + 1 :]]
        equation = f"{', '.join(read)} -> {terms[i]}"
        yield i, b.w.emit("einsum", factors, b.operands[i].shape, equation=equation)


def add(b: BackwardCall) -> Gradients:
    for i in sorted(b.wanted):
        yield i, _sum_to_shape(b.w, b.grads[0], b.operands[i].shape)


def multiply(b: BackwardCall) -> Gradients:
    """Of operands of one shape."""
    for i in sorted(b.wanted):
        yield i, b.w.emit("multiply", [b.grads[0], b.operands[1 - i]])


def of_operand(b: BackwardCall) -> Gradients:
    """By the op's own backward op, from the operand."""
    yield 0, b.w.emit(f"{b.op}_backward", [b.grads[0], b.operands[0]], **b.attrs)


def softmax(b: BackwardCall) -> Gradients:
    yield 0, b.w.emit("softmax_backward", [b.grads[0], b.results[0]], **b.attrs)


def norm(b: BackwardCall) -> Gradients:
    """x and its weights at once."""
    x, *weights = b.operands
    operands = [b.grads[0], x, weights[0]]
    types = [value.type for value in b.operands]
    yield from enumerate(b.w.emit_all(f"{b.op}_backward", operands, types, attrs=b.attrs))


def attention(b: BackwardCall) -> Gradients:
    operands = [*b.operands, b.grads[0]]
    types = [value.type for value in b.operands]
    yield from enumerate(b.w.emit_all(f"{b.op}_backward", operands, types, attrs=b.attrs))


def rope(b: BackwardCall) -> Gradients:
    """Turned back."""
    _, *angles = b.operands
    yield 0, b.w.emit("rope", [b.grads[0], *angles], reversed=True)


def reshape(b: BackwardCall) -> Gradients:
    yield 0, b.w.emit("reshape", [b.grads[0]], b.operands[0].shape)


def transpose(b: BackwardCall) -> Gradients:
    permutation: list[int] = b.attrs["permutation"]
    back = [permutation.index(dim) for dim in range(len(permutation))]
    yield 0, b.w.emit("transpose", [b.grads[0]], b.operands[0].shape, permutation=back)


def split(b: BackwardCall) -> Gradients:
    yield 0, b.w.emit("concat", b.grads, b.operands[0].shape, **b.attrs)


def embedding(b: BackwardCall) -> Gradients:
    table, ids = b.operands
    yield 0, b.w.emit("embedding_backward", [b.grads[0], ids], table.shape)


BACKWARD_OPS: Mapping[str, Callable[[BackwardCall], Gradients]] = MappingProxyType(
    {
        "add": add,
        "addmm": addmm,
        "einsum": einsum,
        "embedding": embedding,
        "gelu": of_operand,
        "layer_norm": norm,
        "linear": linear,
        "multiply": multiply,
        "reshape": reshape,
        "rms_norm": norm,
        "rope": rope,
        "scaled_dot_product_attention": attention,
        "silu": of_operand,
        "softmax": softmax,
        "split": split,
        "transpose": transpose,
    }
)
"""Ops without an entry pass no gradient on: they choose, count or compare."""
