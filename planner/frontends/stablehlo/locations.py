"""The location of an op: its line in the text, or the name stack in JAX's debug info."""

from __future__ import annotations

import re

from jaxlib.mlir import ir

_LINE = re.compile(r'"-":(\d+):\d+')
_NAME = re.compile(r'loc\("([^"]*)"')
MAX_SHOWN = 120


def format_location(op: ir.Operation) -> str:
    """Return the name stack of an op, or `line 12` if it has none."""
    text = str(op.location)
    line, name = _LINE.search(text), name_stack_of(op.location)
    return name[:MAX_SHOWN] if name else f"line {line[1]}" if line else text[:MAX_SHOWN]


def name_stack_of(location: ir.Location) -> str:
    """Return the outermost name of a location; empty if it has none."""
    matched = _NAME.match(str(location))
    return matched[1] if matched and matched[1] != "-" else ""


def phase_of(op: ir.Operation) -> str:
    """Return `backward` below JAX's transpose(...), `forward` below jvp(...), and an empty text elsewhere."""
    text = str(op.location)
    if "transpose(jvp(" in text:
        return "backward"
    return "forward" if "jvp(" in text else ""
