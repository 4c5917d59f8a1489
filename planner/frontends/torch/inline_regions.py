"""Inlining of regions of a graph that run under another mode.

Regions without gradients are inlined with detached operands, so that what they write has none either. Regions that turn
automatic casts off are inlined as they are, since casts are off outside them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

WITHOUT_GRADIENTS = torch.ops.higher_order.wrap_with_set_grad_enabled
WITH_CASTS = torch.ops.higher_order.wrap_with_autocast


def inline_regions(graph: Graph, module: Any) -> None:
    """Inline all regions of a graph in place, nested ones too; `module` holds the subgraphs."""
    while calls := [node for node in graph.nodes if _is_region(node)]:
        for node in calls:
            _replace(graph, module, node)


def _is_region(node: Node) -> bool:
    return node.target is WITHOUT_GRADIENTS or (node.target is WITH_CASTS and not node.args[2])


def _replace(graph: Graph, module: Any, node: Node) -> None:
    first = next(i for i, each in enumerate(node.args) if isinstance(each, Node))
    region, *operands = node.args[first:]
    if node.target is WITHOUT_GRADIENTS and not node.args[0]:
        operands = [_detach(graph, each, node) for each in operands]
    inner = module.get_submodule(str(region.target)).graph
    operand_of = dict(zip(inner.find_nodes(op="placeholder"), operands, strict=True))
    with graph.inserting_before(node):
        copied = graph.graph_copy(inner, operand_of)
    results: Sequence[Any] = copied if isinstance(copied, (list, tuple)) else [copied]
    for reader in list(node.users):
        reader.replace_all_uses_with(results[reader.args[1]])
        graph.erase_node(reader)
    graph.erase_node(node)


def _detach(graph: Graph, value: Any, region: Node) -> Any:
    if not isinstance(value, Node) or not isinstance(value.meta.get("val"), torch.Tensor):
        return value
    with graph.inserting_before(region):
        node = graph.call_function(torch.ops.aten.detach.default, (value,))
    node.meta = dict(value.meta)
    return node
