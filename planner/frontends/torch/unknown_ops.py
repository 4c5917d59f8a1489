"""Calls without a row: planned replicated, under the name they have in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.frontends.torch.aten_call import AtenCall, AtenValue
from planner.frontends.unknown_ops import replicated_rule


def add_replicated(call: AtenCall, target: Any) -> list[AtenValue] | AtenValue:
    """A node with one blocked loop for every dim. Raises NotCovered for a call that does more than compute."""
    call.demand("a call that writes to its arguments", not target._schema.is_mutable)
    call.demand("no results of fixed shape", len(call.results) == len(target._schema.returns))
    operands = [each for given in call.arguments.values() for each in _values(given)]
    attrs = {name: given for name, given in call.arguments.items() if _is_plain(given)}
    notation = replicated_rule([value.shape for value in operands], [kind.shape for kind in call.results])
    made = call.emit_by_rule(str(target), operands, attrs, rule=notation)
    return made[0] if len(made) == 1 else made


def _values(given: Any) -> Sequence[AtenValue]:
    listed = given if isinstance(given, (list, tuple)) else [given]
    return [each for each in listed if isinstance(each, AtenValue)]


def _is_plain(given: Any) -> bool:
    """A number, a text or a list of such: what JSON can say."""
    listed = given if isinstance(given, (list, tuple)) else [given]
    return all(isinstance(each, (bool, int, str)) for each in listed)
