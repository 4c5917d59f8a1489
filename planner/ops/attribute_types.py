"""Types of ops' attributes: those of JSON values, and dims.

A dim is checked against the rank of the op's first tensor: its first operand, or its first result where it has no
operands. A negative dim counts from the end; the typed value does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
MAX_EXACT = 1 << 53
"""Largest whole number that every reader of JSON holds exactly (RFC 7493)."""


@dataclass(frozen=True, slots=True)
class AttributeType(Generic[T_co]):
    """The values that an attribute may take.

    kind    short name, as the reference lists it
    wanted  description for error messages; `{rank}` stands for the rank of the op's first tensor
    parse   (value, rank) -> the typed value, or None for a value of another type
    """

    kind: str
    wanted: str
    parse: Callable[[object, int], T_co | None]


def _parse_number(value: object, rank: int) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        float(value)
    except OverflowError:
        return None
    return value


def _parse_element(value: object, rank: int) -> float | None:
    return value if isinstance(value, bool) else _parse_number(value, rank)


def _parse_whole(value: object, least: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= MAX_EXACT else None


def _parse_dim(value: object, rank: int) -> int | None:
    dim = _parse_whole(value, -rank)
    return dim % rank if dim is not None and dim < rank else None


def _parse_list(value: object, parse: Callable[[object, int], T | None], bound: int) -> tuple[T, ...] | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    items = tuple(item for item in (parse(each, bound) for each in value) if item is not None)
    return items if len(items) == len(value) else None


def _parse_dims(value: object, rank: int) -> tuple[int, ...] | None:
    dims = _parse_list(value, _parse_dim, rank)
    return dims if dims is not None and len(set(dims)) == len(dims) else None


def _parse_permutation(value: object, rank: int) -> tuple[int, ...] | None:
    dims = _parse_dims(value, rank)
    return dims if dims is not None and len(dims) == rank else None


NUMBER = AttributeType("number", "a number", _parse_number)
ELEMENT = AttributeType("number or flag", "a number, true or false", _parse_element)
FLAG = AttributeType("flag", "true or false", lambda value, rank: value if isinstance(value, bool) else None)
EQUATION = AttributeType(
    "rule notation",
    "terms of loops, as 'b k, k n -> b n'",
    lambda value, rank: value if isinstance(value, str) else None,
)
DIM = AttributeType("dim", "a dim of a tensor of rank {rank}", _parse_dim)
DIMS = AttributeType("list of dims", "a list of different dims of a tensor of rank {rank}", _parse_dims)
PERMUTATION = AttributeType("permutation", "a list of all {rank} dims, each once", _parse_permutation)


def one_of(*words: str) -> AttributeType[str]:
    """Return the type of an attribute that is one of these words."""
    text = f"one of {', '.join(words)}"
    return AttributeType(text, text, lambda value, rank: value if isinstance(value, str) and value in words else None)


def whole_number(least: int | None = None) -> AttributeType[int]:
    """Return the type of whole numbers, of `least` or more."""
    text = "whole number" + ("" if least is None else f", {least} or more")
    low = -MAX_EXACT if least is None else least
    return AttributeType(text, f"a {text}", lambda value, rank: _parse_whole(value, low))


def whole_numbers(least: int | None = None, *, per_dim: bool = False) -> AttributeType[tuple[int, ...]]:
    """Return the type of lists of whole numbers, each of `least` or more; `per_dim`: one for each dim."""
    bound = "" if least is None else f", each {least} or more"
    low = -MAX_EXACT if least is None else least

    def parse(value: object, rank: int) -> tuple[int, ...] | None:
        numbers = _parse_list(value, _parse_whole, low)
        return numbers if numbers is not None and (not per_dim or len(numbers) == rank) else None

    count = "{rank} whole numbers, one a dim" if per_dim else "whole numbers"
    kind = "list of whole numbers" + (", one a dim" if per_dim else "")
    return AttributeType(f"{kind}{bound}", f"a list of {count}{bound}", parse)
