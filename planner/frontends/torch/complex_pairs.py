"""Complex numbers as pairs of real tensors: a graph is rewritten before it is differentiated or translated.

Documents have no complex dtype. Rotary embeddings that are written as a product of complex numbers become the products
of their parts, whose gradients torch knows. Fourier transforms and other complex calls are refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from planner.errors import UnsupportedOp
from planner.frontends.torch.location import source_line_of

ATEN = torch.ops.aten
WANTED = (
    "numbers that torch.polar, torch.complex or torch.view_as_complex makes, in sums, products, views, .abs(), .real, "
    ".imag and view_as_real; a Fourier transform as a product with matrices of cosines and sines"
)


class Pair(NamedTuple):
    """The real and the imaginary part of a complex value."""

    real: Any
    imag: Any


class Parts:
    """Emits real calls in the place of one complex call."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Insert a call before the complex one."""
        with self.node.graph.inserting_before(self.node):
            made = self.node.graph.call_function(target, args, kwargs)
        made.meta = dict(self.node.meta)
        values, named = map_arg((args, kwargs), lambda each: each.meta["val"])
        mode = detect_fake_mode(tree_leaves((values, named)))
        with mode or nullcontext(), torch.no_grad():
            made.meta["val"] = target(*values, **named)
        return made

    def multiply(self, x: Any, y: Any) -> Any:
        return self.call(ATEN.mul.Tensor, x, y) if isinstance(x, Node) else self.call(ATEN.mul.Tensor, y, x)

    def add(self, x: Any, y: Any) -> Any:
        return self.call(ATEN.add.Tensor, x, y)

    def negate(self, x: Any) -> Any:
        return self.call(ATEN.neg.default, x)


Rule = Callable[..., Any]
"""A function of `Parts` and the call's arguments, complex ones as pairs; it returns a pair or a real node."""


def _pair(value: Any) -> Pair:
    """Return a complex value, or a real one as a pair whose imaginary part is 0."""
    if isinstance(value, Pair):
        return value
    return Pair(value.real, value.imag) if isinstance(value, complex) else Pair(value, 0)


def _join(parts: Parts, z: Any) -> Any:
    return parts.call(ATEN.stack.default, list(z), -1)


def _read(parts: Parts, x: Any) -> Pair:
    return Pair(*(parts.call(ATEN.select.int, x, -1, position) for position in (0, 1)))


def _polar(parts: Parts, length: Any, angle: Any) -> Pair:
    turned = (parts.call(function, angle) for function in (ATEN.cos.default, ATEN.sin.default))
    return Pair(*(parts.multiply(length, each) for each in turned))


def _multiply(parts: Parts, z: Any, w: Any) -> Pair:
    if not isinstance(z, Pair) and isinstance(w, Pair):
        z, w = w, z
    if not isinstance(w, (Pair, complex)):
        return Pair(*(parts.multiply(each, w) for each in z))
    if not isinstance(z, Pair):  # a real tensor by a complex number
        return Pair(parts.multiply(z, w.real), parts.multiply(z, w.imag))
    across = [parts.multiply(a, b) for a, b in ((z.real, w.imag), (z.imag, w.real))]
    along = [parts.multiply(a, b) for a, b in ((z.real, w.real), (z.imag, w.imag))]
    return Pair(parts.call(ATEN.sub.Tensor, *along), parts.add(*across))


def _divide(parts: Parts, z: Any, w: Any) -> Pair:
    if not isinstance(w, (Pair, complex)):
        return Pair(*(parts.call(ATEN.div.Tensor, each, w) for each in z))
    if isinstance(w, complex):
        return _multiply(parts, z, 1 / w)
    square = _square(parts, w)
    product = _multiply(parts, z, Pair(w.real, parts.negate(w.imag)))
    return Pair(*(parts.call(ATEN.div.Tensor, each, square) for each in product))


def _square(parts: Parts, z: Pair) -> Any:
    return parts.add(*(parts.multiply(each, each) for each in z))


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


def _apart(target: Any) -> Rule:
    """Return the rule of a call that treats both parts alike, such as a view."""

    def rule(parts: Parts, *args: Any, **kwargs: Any) -> Pair:
        sides = (tuple(_side(each, side) for each in args) for side in (0, 1))
        return Pair(*(parts.call(target, *each, **kwargs) for each in sides))

    return rule


def _side(argument: Any, side: int) -> Any:
    if isinstance(argument, Pair):
        return argument[side]
    return [_side(each, side) for each in argument] if isinstance(argument, list) else argument


ALIKE = (
    "alias.default broadcast_to.default cat.default chunk.default clone.default contiguous.default detach.default "
    "expand.default flatten.using_ints flip.default index.Tensor index_select.default lift_fresh_copy.default mean.dim "
    "movedim.int narrow.default neg.default numpy_T.default permute.default repeat.default reshape.default "
    "roll.default select.int slice.Tensor split.Tensor squeeze.dim stack.default sum.dim_IntList swapaxes.default "
    "t.default transpose.int unbind.int unflatten.int unsqueeze.default view.default where.self"
)


def _find_overload(name: str) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(ATEN, packet), overload)


RULES: Mapping[Any, Rule] = {
    ATEN.view_as_complex.default: _read,
    ATEN.view_as_real.default: _join,
    ATEN.complex.default: lambda parts, real, imag: Pair(real, imag),
    ATEN.polar.default: _polar,
    ATEN.mul.Tensor: _multiply,
    ATEN.div.Tensor: _divide,
    ATEN.add.Tensor: _sum(ATEN.add.Tensor),
    ATEN.sub.Tensor: _sum(ATEN.sub.Tensor),
    ATEN.exp.default: _exponential,
    ATEN.abs.default: lambda parts, z: parts.call(ATEN.sqrt.default, _square(parts, z)),
    ATEN.angle.default: lambda parts, z: parts.call(ATEN.atan2.default, z.imag, z.real),
    ATEN.real.default: lambda parts, z: z.real,
    ATEN.imag.default: lambda parts, z: z.imag,
    ATEN.conj.default: _conjugate,
    ATEN._conj.default: _conjugate,
    ATEN.resolve_conj.default: lambda parts, z: z,
    ATEN.to.dtype: _cast,
    ATEN._to_copy.default: _cast,
    operator.getitem: _apart(operator.getitem),
    **{overload: _apart(overload) for overload in map(_find_overload, ALIKE.split())},
}


def _is_complex(node: Any) -> bool:
    values = node.meta.get("val") if isinstance(node, Node) else None
    listed = values if isinstance(values, (list, tuple)) else [values]
    return any(isinstance(each, torch.Tensor) and each.is_complex() for each in listed)


def split_complex(graph: Graph, program: ExportedProgram, name: str) -> None:
    """Rewrite a graph of a program without regions, and the program's complex buffers and constants, in place.

    A complex buffer or constant becomes a real one with a last dim of two, its parts. Raises UnsupportedOp for complex
    inputs and results, and for complex calls that have no rule.
    """
    pairs: dict[Node, Pair] = {}
    specs = dict(zip(graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True))
    for node in [node for node in graph.nodes if _is_complex(node) or any(map(_is_complex, node.all_input_nodes))]:
        if node.op == "output" or (node.op == "placeholder" and specs[node].kind == InputKind.USER_INPUT):
            raise _refuse(node, name, "an input or a result that is complex")
        if node.op == "placeholder":
            pairs[node] = _split_state(node, program, specs[node].target)
            continue
        made = _emit_parts(node, pairs, name)
        if isinstance(made, Pair):
            pairs[node] = made
        else:
            node.replace_all_uses_with(made)
            graph.erase_node(node)
    for node in reversed(pairs):
        if node.op != "placeholder":
            graph.erase_node(node)


def _split_state(node: Node, program: ExportedProgram, target: str | None) -> Pair:
    for state in (program.state_dict, program.constants):
        tensor = state.get(target)
        if isinstance(tensor, torch.Tensor) and tensor.is_complex():
            parts = torch.view_as_real(tensor.detach())
            state[target] = torch.nn.Parameter(parts) if isinstance(tensor, torch.nn.Parameter) else parts
    node.meta["val"] = torch.view_as_real(node.meta["val"])
    return _read(Parts(node.next), node)


def _emit_parts(node: Node, pairs: Mapping[Node, Pair], name: str) -> Any:
    rule = RULES.get(node.target)
    if rule is None:
        raise _refuse(node, name, str(node.target))
    args, kwargs = map_arg((node.args, node.kwargs), lambda each: pairs.get(each, each))
    try:
        return rule(Parts(node), *args, **kwargs)
    except (AttributeError, TypeError, RuntimeError, ValueError):  # arguments that no rule expects
        raise _refuse(node, name, str(node.target)) from None


def _refuse(node: Node, name: str, got: str) -> UnsupportedOp:
    return UnsupportedOp("complex numbers", where=f"{name}: {source_line_of(node)}", got=got, wanted=WANTED)
