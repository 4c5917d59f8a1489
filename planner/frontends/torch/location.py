"""The location of a call: its module in the model and its line in the source; calls refused for what they return."""

from __future__ import annotations

import re

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from planner.errors import UnsupportedOp

LINE = re.compile(r'File "([^"]+)", line (\d+)')


def scope_of(node: Node) -> str:
    """Return the path of the innermost module that contains the call, or whose backward the call belongs to."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {"": ("",)}
    return str(list(stack.values())[-1][0]).removeprefix("module").removeprefix(".")


def source_line_of(node: Node) -> str:
    """Return the scope and the source line of a node, as far as they are known."""
    written = LINE.findall(node.meta.get("stack_trace") or "")
    line = f" ({written[-1][0].rpartition('/')[2]}:{written[-1][1]})" if written else ""
    return (scope_of(node) or "the model itself") + line


DATA_DEPENDENT_WANTED = (
    "shapes and numbers known before the run: torch.where or a product with the mask in place of x[mask], topk in "
    "place of nonzero and unique, tensors in place of .item(), torch.where in place of a branch"
)


def refuse_data_dependent(graph: Graph, name: str) -> None:
    """Raise UnsupportedOp for the first call of which a shape or a number is known only once it has run."""
    for node in graph.nodes:
        if node.op == "call_function" and free_unbacked_symbols(node.meta.get("val")):
            where = f"{name}: {source_line_of(node)}"
            raise UnsupportedOp(
                "a shape or number that depends on data",
                where=where,
                got=str(node.target),
                wanted=DATA_DEPENDENT_WANTED,
            )


def refuse_sparse(graph: Graph, name: str) -> None:
    """Raise UnsupportedOp for the first tensor that holds only some of its elements."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            where = f"{name}: {source_line_of(node)}"
            wanted = "dense tensors: .to_dense(), or index_select and index_add over the positions of the elements"
            raise UnsupportedOp("a sparse tensor", where=where, got=str(value.layout), wanted=wanted)


def refuse_detached_writes(graph: Graph, name: str) -> None:
    """Raise UnsupportedOp for the first write through `detach`: it would cut what it writes to off its gradient."""
    for node in graph.nodes:
        written = node.args[0] if node.args and _is_mutable(node) else None
        while isinstance(written, Node) and written.target in VIEWS:
            written = written.args[0]
        if isinstance(written, Node) and written.target is DETACH and _may_have_gradient(written.args[0]):
            where = f"{name}: {source_line_of(node)}"
            wanted = "a new tensor: x + (f(x) - x).detach() writes f(x) and keeps the gradient of x"
            raise UnsupportedOp("a write to a detached tensor", where=where, got=str(node.target), wanted=wanted)


def _may_have_gradient(source: Node) -> bool:
    """Return whether a tensor comes from others, and so may have a gradient: it is no input and not made of nothing."""
    while source.target is DETACH:
        source = source.args[0]
    return source.op != "placeholder" and bool(source.all_input_nodes)


DETACH = torch.ops.aten.detach.default
VIEWS = (torch.ops.aten.view.default, torch.ops.aten.select.int, torch.ops.aten.slice.Tensor)


def _is_mutable(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)
