"""Calls without a row, as torch itself computes them from smaller calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from planner.frontends.torch.op_table import ATEN
from planner.frontends.torch.prims import PRIMS
from planner.frontends.torch.smaller_calls import SMALLER_CALLS

PIECES = {
    primitive: call
    for primitive, call in PRIMS.items()
    if not isinstance(call, torch._ops.OpOverload) or str(call) in ATEN  # others decompose into what they came from
}
SMALLER = PIECES | {
    overload: function
    for overload, function in (decomposition_table | dict(SMALLER_CALLS)).items()
    if str(overload) not in ATEN
}
"""The decompositions of calls that have no row, torch's and ours."""


def decompose(node: Node) -> Graph | None:
    """Return the smaller calls that compute a call, with its operands as placeholders; None if there are none."""
    given, structure = tree_flatten((node.args, node.kwargs))

    def call(function: Callable[..., Any], *operands: Any) -> Any:
        fresh = iter(operands)
        leaves = [next(fresh) if isinstance(each, Node) else _on_cpu(each) for each in given]
        args, kwargs = tree_unflatten(leaves, structure)
        result = function(*args, **kwargs)
        return tuple(result) if isinstance(result, (list, tuple)) else result

    values = [each.meta["val"] for each in given if isinstance(each, Node)]
    graphs = (_trace(partial(call, function), values) for function in _decompositions(node.target))
    return next((graph for graph in graphs if graph is not None), None)


def _trace(call: Callable[..., Any], values: Sequence[torch.Tensor]) -> Graph | None:
    """Trace a function of tensors like `values`, which have no storage; return None if it cannot be traced."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # Without MKL-DNN torch computes recurrent layers from smaller calls.
    plain = torch.backends.mkldnn.flags(enabled=False)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"), mode, plain:
        try:
            operands = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="cpu") for v in values]
            traced = make_fx(call, decomposition_table=PIECES)(*operands)
            if traced.graph.output_node().args[0] is NotImplemented:
                return None
            # Composite calls write in place, which only calls that were traced before are rid of.
            writes = any(_is_mutable(node) for node in traced.graph.nodes)
            pure = torch.func.functionalize(traced, remove="mutations") if writes else traced
            graph: Graph = make_fx(pure, decomposition_table=SMALLER)(*operands).graph
        except Exception:  # noqa: BLE001 - torch's code, not all of which runs without storage, may raise anything
            return None
    for node in reversed(graph.nodes):
        if not node.users and node.op == "call_function":  # assertions too
            graph.erase_node(node)
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    return graph if all(node.op == "call_function" and "val" in node.meta for node in calls) else None


def _is_mutable(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _on_cpu(argument: Any) -> Any:
    return torch.device("cpu") if isinstance(argument, torch.device) else argument


def _decompositions(target: Any) -> Iterator[Callable[..., Any]]:
    """Yield the functions that may compute a call from smaller ones: ours, torch's, and the call itself."""
    for table in (SMALLER_CALLS, decomposition_table):
        if target in table:
            yield table[target]
    if isinstance(target, torch._ops.OpOverload) and target._can_decompose():
        yield target.decompose
