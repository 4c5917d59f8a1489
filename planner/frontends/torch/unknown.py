"""Calls without a row: planned replicated, under the name they have in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.frontends.torch.call import Call, Value
from planner.frontends.unknown import rule


def replicated(call: Call, target: Any) -> list[Value] | Value:
    """A node with one blocked loop for every dim. Raises NotCovered for a call that does more than compute."""
    call.demand("a call that writes to its arguments", not target._schema.is_mutable)
    call.demand("no results of fixed shape", len(call.results) == len(target._schema.returns))
    operands = [each for given in call.arguments.values() for each in _values(given)]
    attrs = {name: given for name, given in call.arguments.items() if _is_plain(given)}
    notation = rule([value.shape for value in operands], [kind.shape for kind in call.results])
    made = call.emit_by_rule(str(target), operands, attrs, notation)
    return made[0] if len(made) == 1 else made


def _values(given: Any) -> Sequence[Value]:
    listed = given if isinstance(given, (list, tuple)) else [given]
    return [each for each in listed if isinstance(each, Value)]


def _is_plain(given: Any) -> bool:
    """A number, a text or a list of such: what JSON can say."""
    listed = given if isinstance(given, (list, tuple)) else [given]
    return all(isinstance(each, (bool, int, str)) for each in listed)
