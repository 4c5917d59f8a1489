"""Backward rules of every op that the families use.

A rule takes the gradients of an op's results and yields (operand number, gradient) for the operands that need one. In
a product, the gradient of a factor is the product of the result's gradient with the other factors, summed over the
loops that the factor lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from planner.frontends.graph_builder import DocumentValue, Entry
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.ir.sharding import Shape

Gradients = Iterator[tuple[int, DocumentValue]]


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """A node of the forward pass, the gradients of its results, and the numbers of operands that need a gradient."""

    builder: ModelBuilder
    op: str
    attrs: Mapping[str, Any]
    operands: tuple[DocumentValue, ...]
    results: tuple[DocumentValue, ...]
    grads: tuple[DocumentValue, ...]
    wanted: frozenset[int]


def linear(call: BackwardCall) -> Gradients:
    """y = x weight^T + bias, if there is one."""
    (x, weight, *bias), (dy,) = call.operands, call.grads
    if 0 in call.wanted:
        yield 0, call.builder.emit("matmul", [dy, weight], x.shape)
    if 1 in call.wanted:
        yield 1, _product_of_rows(call.builder, dy, x)
    if 2 in call.wanted:
        yield 2, _sum_to_shape(call.builder, dy, bias[0].shape)


def addmm(call: BackwardCall) -> Gradients:
    """y = bias + x weight."""
    (bias, x, weight), (dy,) = call.operands, call.grads
    if 1 in call.wanted:
        yield 1, call.builder.emit("linear", [dy, weight], x.shape)
    if 2 in call.wanted:
        yield 2, _product_of_rows(call.builder, x, dy)
    if 0 in call.wanted:
        yield 0, _sum_to_shape(call.builder, dy, bias.shape)


def _product_of_rows(builder: ModelBuilder, left: DocumentValue, right: DocumentValue) -> DocumentValue:
    """Emit left^T right over all dims but the last.

    The einsum has a loop for each of these dims, so each may stay split; flattened, only the first could.
    """
    rows = " ".join(f"r{i}" for i in range(len(left.shape) - 1))
    shape = [left.shape[-1], right.shape[-1]]
    return builder.emit("einsum", [left, right], shape, equation=f"{rows} m, {rows} n -> m n")


def _sum_to_shape(builder: ModelBuilder, value: DocumentValue, shape: Shape) -> DocumentValue:
    """Sum a value over the leading dims that `shape` lacks, and over those of size 1 in it."""
    extra = len(value.shape) - len(shape)
    ones = [extra + dim for dim, size in enumerate(shape) if size == 1 != value.shape[extra + dim]]
    dims = [*range(extra), *ones]
    if not dims:
        return value
    left = [size for dim, size in enumerate(value.shape) if dim not in dims]
    return builder.reshape(builder.emit("sum", [value], left, dims=dims), shape)


def einsum(call: BackwardCall) -> Gradients:
    """The same product with the result's gradient in the place of the factor."""
    left, _, result = str(call.attrs["equation"]).partition("->")
    terms = [term.strip() for term in left.split(",")]
    for i in sorted(call.wanted):
        read = [result.strip(), *terms[:i], *terms[i + 1 :]]
        factors = [call.grads[0], *call.operands[:i], *call.operands[i + 1 :]]
        equation = f"{', '.join(read)} -> {terms[i]}"
        yield i, call.builder.emit("einsum", factors, call.operands[i].shape, equation=equation)


def add(call: BackwardCall) -> Gradients:
    for i in sorted(call.wanted):
        yield i, _sum_to_shape(call.builder, call.grads[0], call.operands[i].shape)


def multiply(call: BackwardCall) -> Gradients:
    """Two operands of the same shape, or one and a number."""
    for i in sorted(call.wanted):
        other = [] if call.attrs else [call.operands[1 - i]]
        yield i, call.builder.emit("multiply", [call.grads[0], *other], **call.attrs)


def cast(call: BackwardCall) -> Gradients:
    yield 0, call.builder.cast(call.grads[0], call.operands[0].dtype)


def from_operand(call: BackwardCall) -> Gradients:
    """Ops whose own backward op reads their operand."""
    yield 0, call.builder.emit(f"{call.op}_backward", [call.grads[0], call.operands[0]], **call.attrs)


def from_result(call: BackwardCall) -> Gradients:
    """Ops whose own backward op reads their result."""
    yield 0, call.builder.emit(f"{call.op}_backward", [call.grads[0], call.results[0]], **call.attrs)


def log(call: BackwardCall) -> Gradients:
    yield 0, call.builder.emit("divide", [call.grads[0], call.operands[0]])


def norm(call: BackwardCall) -> Gradients:
    """The gradients of x and of its weights come from one op."""
    x, *weights = call.operands
    operands = [call.grads[0], x, weights[0]]
    types = [value.type for value in call.operands]
    yield from enumerate(call.builder.emit_all(f"{call.op}_backward", operands, types, attrs=call.attrs))


def attention(call: BackwardCall) -> Gradients:
    """The gradient of the result comes before the sinks."""
    operands = [*call.operands[:3], call.grads[0], *call.operands[3:]]
    types = [value.type for value in call.operands]
    yield from enumerate(call.builder.emit_all(f"{call.op}_backward", operands, types, attrs=call.attrs))


def rope(call: BackwardCall) -> Gradients:
    """The rotation in the other direction."""
    _, *angles = call.operands
    yield 0, call.builder.emit("rope", [call.grads[0], *angles], reversed=True)


def reshape(call: BackwardCall) -> Gradients:
    yield 0, call.builder.emit("reshape", [call.grads[0]], call.operands[0].shape)


def transpose(call: BackwardCall) -> Gradients:
    permutation: list[int] = call.attrs["permutation"]
    back = [permutation.index(dim) for dim in range(len(permutation))]
    yield 0, call.builder.emit("transpose", [call.grads[0]], call.operands[0].shape, permutation=back)


def split(call: BackwardCall) -> Gradients:
    yield 0, call.builder.emit("concat", call.grads, call.operands[0].shape, **call.attrs)


def concat(call: BackwardCall) -> Gradients:
    types = [value.type for value in call.operands]
    parts = enumerate(call.builder.emit_all("split", call.grads, types, attrs=call.attrs))
    yield from ((i, part) for i, part in parts if i in call.wanted)


def expand(call: BackwardCall) -> Gradients:
    yield 0, _sum_to_shape(call.builder, call.grads[0], call.operands[0].shape)


def embedding(call: BackwardCall) -> Gradients:
    table, ids = call.operands
    yield 0, call.builder.emit("embedding_backward", [call.grads[0], ids], table.shape)


BACKWARD_OPS: Mapping[str, Callable[[BackwardCall], Gradients]] = MappingProxyType(
    {
        "add": add,
        "addmm": addmm,
        "cast": cast,
        "concat": concat,
        "einsum": einsum,
        "embedding": embedding,
        "expand": expand,
        "gelu": from_operand,
        "layer_norm": norm,
        "linear": linear,
        "log": log,
        "multiply": multiply,
        "reshape": reshape,
        "rms_norm": norm,
        "rope": rope,
        "scaled_dot_product_attention": attention,
        "sigmoid": from_result,
        "silu": from_operand,
        "softmax": from_result,
        "split": split,
        "transpose": transpose,
    }
)
"""Ops without an entry pass no gradient on: they select, count or compare."""


def find_backward_rule(builder: ModelBuilder, node: Entry) -> Callable[[BackwardCall], Gradients] | None:
    """Return the rule of a node: that of its result, or else of its op; None where it passes no gradient on."""
    return builder.backward_rules.get(node["id"]) or BACKWARD_OPS.get(node["op"])
