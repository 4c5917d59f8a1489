"""The location of a call: its module in the model and its line in the source."""

from __future__ import annotations

import re

from torch.fx import Node

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
