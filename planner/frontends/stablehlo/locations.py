"""Where an op stands: the line of the text, or the name stack that JAX left in its debug info."""

from __future__ import annotations

import re

from jaxlib.mlir import ir

_LINE = re.compile(r'"-":(\d+):\d+')
_NAME = re.compile(r'loc\("([^"]*)"')
MAX_SHOWN = 120


def format_location(op: ir.Operation) -> str:
    """`line 12`, or the name stack."""
    text = str(op.location)
    line, name = _LINE.search(text), name_stack_of(op.location)
    return name[:MAX_SHOWN] if name else f"line {line[1]}" if line else text[:MAX_SHOWN]


def name_stack_of(location: ir.Location) -> str:
    """The outermost name of a location; nothing where it has none."""
    found = _NAME.match(str(location))
    return found[1] if found and found[1] != "-" else ""


def phase_of(op: ir.Operation) -> str:
    """`backward` below JAX's transpose(...), `forward` below jvp(...), nothing where neither is said."""
    text = str(op.location)
    if "transpose(jvp(" in text:
        return "backward"
    return "forward" if "jvp(" in text else ""
