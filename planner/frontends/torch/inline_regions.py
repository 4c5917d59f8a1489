"""Regions of a graph under another mode, written out: those without gradients, whose results are then detached, and
those where automatic casts are off, as they are outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

WITHOUT_GRADIENTS = torch.ops.higher_order.wrap_with_set_grad_enabled
WITH_CASTS = torch.ops.higher_order.wrap_with_autocast


def inline_regions(graph: Graph, module: Any) -> None:
    """In place; `module` holds the subgraphs. Regions inside of regions as well."""
    while calls := [node for node in graph.nodes if _is_region(node)]:
        for node in calls:
            _replace(graph, module, node)


def _is_region(node: Node) -> bool:
    return node.target is WITHOUT_GRADIENTS or (node.target is WITH_CASTS and not node.args[2])


def _replace(graph: Graph, module: Any, node: Node) -> None:
    first = next(i for i, each in enumerate(node.args) if isinstance(each, Node))
    region, *operands = node.args[first:]
    detached = node.target is WITHOUT_GRADIENTS and not node.args[0]
    inner = module.get_submodule(str(region.target)).graph
    given = dict(zip(inner.find_nodes(op="placeholder"), operands, strict=True))
    with graph.inserting_before(node):
        made = graph.graph_copy(inner, given)
    results: Sequence[Any] = made if isinstance(made, (list, tuple)) else [made]
    for reader in list(node.users):
        result = results[reader.args[1]]
        reader.replace_all_uses_with(_detach(graph, result, reader) if detached else result)
        graph.erase_node(reader)
    graph.erase_node(node)


def _detach(graph: Graph, value: Node, reader: Node) -> Node:
    with graph.inserting_before(reader):
        node = graph.call_function(torch.ops.aten.detach.default, (value,))
    node.meta = dict(value.meta)
    return node
