"""Calls without a row, as torch itself computes them from smaller calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from planner.frontends.torch.op_table import ATEN
from planner.frontends.torch.smaller_calls import SMALLER_CALLS

SMALLER = {
    overload: function
    for overload, function in (decomposition_table | dict(SMALLER_CALLS)).items()
    if str(overload) not in ATEN
}
"""The decompositions of calls that have no row, torch's and ours."""

PRIMS = {
    "default": "abs ceil cos erf exp expm1 floor log log1p neg reciprocal round rsqrt sign sin sqrt tanh "
    "maximum minimum",
    "Tensor": "add sub mul div eq ne lt le gt ge",
    "self": "where",
}
SAME = {
    getattr(torch.ops.prims, name).default: getattr(getattr(torch.ops.aten, name), overload)
    for overload, names in PRIMS.items()
    for name in names.split()
}
"""The calls inside decompositions that have another namespace, and the ATen overloads with the same arguments."""


def decompose(node: Node) -> Graph | None:
    """Return the smaller calls that compute a call, with its operands as placeholders; None if torch has none."""
    function = _decomposition(node.target)
    if function is None:
        return None
    given, structure = tree_flatten((node.args, node.kwargs))

    def call(*operands: Any) -> Any:
        fresh = iter(operands)
        leaves = [next(fresh) if isinstance(each, Node) else _on_cpu(each) for each in given]
        args, kwargs = tree_unflatten(leaves, structure)
        return function(*args, **kwargs)

    return _trace(call, [each.meta["val"] for each in given if isinstance(each, Node)])


def _trace(call: Callable[..., Any], values: Sequence[torch.Tensor]) -> Graph | None:
    """Trace a function of tensors like `values`, which have no storage; return None if it cannot be traced."""
    pure = torch.func.functionalize(call, remove="mutations")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # Without MKL-DNN torch computes recurrent layers from smaller calls.
    plain = torch.backends.mkldnn.flags(enabled=False)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"), mode, plain:
        try:
            operands = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="cpu") for v in values]
            graph: Graph = make_fx(pure, decomposition_table=SMALLER)(*operands).graph
        except Exception:  # noqa: BLE001 - torch's code, not all of which runs without storage, may raise anything
            return None
    graph.eliminate_dead_code()
    for node in graph.nodes:
        node.target = SAME.get(node.target, node.target) if node.op == "call_function" else node.target
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    return graph if all(node.op == "call_function" and "val" in node.meta for node in calls) else None


def _on_cpu(argument: Any) -> Any:
    return torch.device("cpu") if isinstance(argument, torch.device) else argument


def _decomposition(target: Any) -> Callable[..., Any] | None:
    """Return the function that computes a call from smaller ones, which may be the call itself."""
    function: Callable[..., Any] | None = decomposition_table.get(target)
    if function is None and isinstance(target, torch._ops.OpOverload) and target._can_decompose():
        return target.decompose  # type: ignore[no-any-return]  # torch is untyped here
    return function
