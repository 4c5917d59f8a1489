"""Where a call stands: in the model, and in the text it was written in."""

from __future__ import annotations

import re

from torch.fx import Node

LINE = re.compile(r'File "([^"]+)", line (\d+)')


def scope_of(node: Node) -> str:
    """The path of the innermost module that the call stands in, or that it is the backward of."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {"": ("",)}
    return str(list(stack.values())[-1][0]).removeprefix("module").removeprefix(".")


def source_line_of(node: Node) -> str:
    """Scope and source line, as far as they are known."""
    written = LINE.findall(node.meta.get("stack_trace") or "")
    line = f" ({written[-1][0].rpartition('/')[2]}:{written[-1][1]})" if written else ""
    return (scope_of(node) or "the model itself") + line
