"""Complex numbers as pairs of real tensors: a graph is rewritten before it is differentiated or translated.

Documents have no complex dtype. Rotary embeddings that are written as a product of complex numbers become the products
of their parts, whose gradients torch knows. Complex calls outside the rules of `complex_rules` are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from planner.errors import UnsupportedOp
from planner.frontends.torch import fourier
from planner.frontends.torch.complex_parts import Pair, Parts, read_parts
from planner.frontends.torch.complex_rules import RULES
from planner.frontends.torch.location import source_line_of

WANTED = (
    "numbers that torch.polar, torch.complex, torch.view_as_complex or torch.fft makes, in sums, products, views, "
    "transforms of torch.fft, .abs(), .real, .imag and view_as_real"
)


def _is_complex(node: Any) -> bool:
    values = node.meta.get("val") if isinstance(node, Node) else None
    listed = values if isinstance(values, (list, tuple)) else [values]
    return any(isinstance(each, torch.Tensor) and each.is_complex() for each in listed)


def _has_complex(node: Node) -> bool:
    """Return whether a call reads or makes complex numbers; a transform of torch.fft may have them inside only."""
    return node.target in fourier.RULES or any(map(_is_complex, (node, *node.all_input_nodes)))


def split_complex(graph: Graph, program: ExportedProgram, name: str) -> None:
    """Rewrite a graph of a program without regions, and the program's complex buffers and constants, in place.

    A complex buffer or constant becomes a real one with a last dim of two, its parts. Raises UnsupportedOp for complex
    inputs and results, and for complex calls that have no rule.
    """
    pairs: dict[Node, Pair] = {}
    specs = dict(zip(graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True))
    for node in filter(_has_complex, list(graph.nodes)):
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
    return read_parts(Parts(node.next), node)


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
