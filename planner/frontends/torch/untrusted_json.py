"""Refuses what would run as code when torch reads the JSON of an exported program.

torch's reader is meant for files of one's own. It evaluates the text of symbolic sizes (`sympy.sympify` calls `eval`),
writes names of values into the source of a function and executes that, resolves targets as attributes of `torch`, from
which every module of Python can be reached, and imports modules that the structure of arguments names. In what torch
itself writes, names are words, sizes are numbers or symbols, and targets are operators. All else is refused first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.errors import InvalidGraph

_WORD = re.compile(r"\w*")
_NAMED = (_WORD, "letters, digits and _")
_PATH = (re.compile(r"[\w.]*"), "words with dots between")
_OPERATOR = (
    re.compile(r"torch\.ops(\.[A-Za-z]\w*){2,3}|torch\._?sym_\w+|(_operator|math)\.[A-Za-z]\w*"),
    "an operator of torch",
)
_STRUCTURE = (
    re.compile(r"(?s:(?!defaultdict|__enum__|\\u).)*"),
    "arguments in tuples, lists and dictionaries",
)
_TEXTS = {
    "name": _NAMED,
    "as_name": _NAMED,
    "expr_str": (re.compile(r"[a-z]{1,8}\d{1,8}"), "sizes that are numbers: an export without dynamic shapes"),
    "target": _OPERATOR,
    "as_operator": _OPERATOR,
    "parameter_name": _PATH,
    "buffer_name": _PATH,
    "tensor_constant_name": _PATH,
    "in_spec": _STRUCTURE,
    "out_spec": _STRUCTURE,
}
"""What the text under a key may be, and how that is said."""
_NAMES_OF_VALUES = re.compile(r"(tensor|sym_int|sym_bool|sym_float|custom_obj)_values")
"""Keys of mappings whose own keys are names."""


def check_document(document: Mapping[str, Any]) -> None:
    """Raise InvalidGraph where something in the JSON of a program could run as code."""
    pending: list[Any] = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, dict):
            for key, inner in value.items():
                if _NAMES_OF_VALUES.fullmatch(key) and isinstance(inner, dict):
                    for name in inner:
                        _check(key, name, *_NAMED)
                    pending.extend(inner.values())
                elif key in _TEXTS and inner is not None:
                    _check(key, inner, *_TEXTS[key])
                elif key == "forward_arg_names":
                    for name in inner or ():
                        _check(key, name, *_NAMED)
                else:
                    pending.append(inner)


def _check(key: str, text: object, pattern: re.Pattern[str], wanted: str) -> None:
    if not (isinstance(text, str) and pattern.fullmatch(text)):
        raise InvalidGraph(key, got=text, wanted=wanted)
