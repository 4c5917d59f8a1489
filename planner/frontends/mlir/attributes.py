"""Types and attributes of MLIR text as Python values.

Numbers, strings, booleans, lists and dictionaries become Python's (a unit attribute is True), `@name` a Symbol,
`dense<...>` a DenseAttribute, an affine map an AffineMap. A dialect's attribute becomes a ShardingSyntax, a dictionary
for the form `#dialect.name<key = value, ...>`, or the last word of its text.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import InvalidGraph
from planner.frontends.mlir.scanner import STRING, WORD, Scanner, unescape
from planner.frontends.mlir.sharding_syntax import parse_sharding_attribute
from planner.frontends.mlir.types import MlirTensorType, MlirType, parse_type, parse_types

MAX_DEPTH = 64
FLOAT = r"-?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?"
_FLOAT_BITS = {"f64": ("<Q", "<d", 0), "f32": ("<I", "<f", 0), "f16": ("<H", "<e", 0), "bf16": ("<I", "<f", 16)}


@dataclass(frozen=True, slots=True)
class Symbol:
    """`@name`."""

    name: str


@dataclass(frozen=True, slots=True)
class DenseAttribute:
    """`dense<...>`: one number for all elements, or the numbers in order; None if the elements are not numbers."""

    value: int | float | bool | tuple[int | float | bool, ...] | None
    type: MlirType


LoopSum = Mapping[int, int]
"""A sum of loops, by number, with coefficients of 1 or more; the constant 0 has no loops."""


@dataclass(frozen=True, slots=True)
class AffineMap:
    """An affine map whose results are sums of loops."""

    results: tuple[LoopSum, ...]


def parse_attribute(scan: Scanner, depth: int = 0) -> Any:
    """Parse an attribute. Raises InvalidDocument."""
    if depth > MAX_DEPTH:
        raise scan.error("nested too deeply", wanted=f"at most {MAX_DEPTH} levels")
    if scan.peek(r"\["):
        return parse_list(scan, depth)
    if scan.peek(r"\{"):
        return parse_dictionary(scan, depth)
    if text := scan.accept(STRING):
        return unescape(text)
    if scan.peek("@"):
        return Symbol(scan.symbol())
    if scan.peek("#"):
        return _parse_dialect_attribute(scan, depth)
    if scan.peek(r"-?[0-9]"):
        return _parse_typed(scan)
    if scan.peek(r"(?:true|false|unit)(?![\w.])"):
        return scan.accept(WORD) != "false"
    return _parse_keyword(scan, depth)


def _parse_keyword(scan: Scanner, depth: int) -> Any:
    if scan.accept(r"dense\s*<"):
        return _parse_dense(scan, depth)
    if scan.accept(r"array\s*<"):
        scan.expect(r"\w+", "an element type")
        scan.mark(":")
        return scan.parse_list("", lambda: parse_attribute(scan, depth + 1), ">")
    if scan.accept(r"affine_map\s*<"):
        return _parse_affine_map(scan)
    types = parse_types(scan)
    if scan.mark("->"):
        parse_types(scan)
    return types[0] if len(types) == 1 else None


def parse_number(scan: Scanner) -> int | float:
    if text := scan.accept(FLOAT):
        return float(text)
    if text := scan.accept(r"0x[0-9A-Fa-f]+"):
        return int(text, 16)
    return scan.integer()


def _parse_typed(scan: Scanner) -> int | float:
    """Parse a number with an optional type, which is dropped; a hexadecimal number of a float type is its bits."""
    at, bits = scan.at, scan.peek("0x")
    value = parse_number(scan)
    return _convert_element(scan, at, value, kind=parse_type(scan), bits=bits) if scan.mark(":") else value


def parse_list(scan: Scanner, depth: int = 0) -> list[Any]:
    return scan.parse_list("[", lambda: parse_attribute(scan, depth + 1), "]")


def parse_dictionary(scan: Scanner, depth: int = 0, end: str = "}") -> dict[str, Any]:
    """Parse `{key = value, unit}`. With another `end`, the opening mark has been read."""
    entries: dict[str, Any] = {}

    def entry() -> None:
        at = scan.at
        key = scan.expect(f"{WORD}|{STRING}", "a key")
        key = unescape(key) if key[0] == '"' else key
        if key in entries:
            raise scan.error("key repeated", at=at, wanted="every key once")
        entries[key] = parse_attribute(scan, depth + 1) if scan.mark("=") else True

    scan.parse_list("{" if end == "}" else "", entry, end)
    return entries


def _parse_dense(scan: Scanner, depth: int) -> DenseAttribute:
    at, bits = scan.at, scan.peek("-?0x")
    if scan.peek('"'):
        value: Any = None
        scan.accept(STRING)
        scan.need(">")
    elif scan.mark(">"):
        value = ()
    else:
        value = parse_attribute(scan, depth + 1)
        scan.need(">")
        if isinstance(value, list):
            value = tuple(_flatten(value, scan, at))
    scan.need(":")
    type_at = scan.at
    kind = parse_type(scan)
    if isinstance(kind, MlirTensorType) and not kind.type.is_sized:
        raise scan.error("type of a constant", at=type_at, got=str(kind.type), wanted="sizes", error=InvalidGraph)
    if not isinstance(value, tuple) and value is not None:
        value = _convert_element(scan, at, value, kind=kind, bits=bits)
    return DenseAttribute(value, kind)


def _flatten(value: list[Any], scan: Scanner, at: int) -> list[Any]:
    flat = [x for each in value for x in (_flatten(each, scan, at) if isinstance(each, list) else [each])]
    if not all(isinstance(each, int | float) for each in flat):
        raise scan.error("elements", at=at, wanted="numbers")
    return flat


def _convert_element(scan: Scanner, at: int, value: object, *, kind: MlirType, bits: bool) -> int | float | bool:
    """Return the number of an element; `bits`: a hexadecimal number of a float type is its bit pattern."""
    dtype = kind.type.dtype if isinstance(kind, MlirTensorType) else kind
    if not isinstance(value, int | float):
        raise scan.error("element", at=at, wanted="a number")
    if not bits or dtype not in _FLOAT_BITS:
        return value
    whole, real, shift = _FLOAT_BITS[dtype]
    try:
        number: float = struct.unpack(real, struct.pack(whole, int(value) << shift))[0]
    except struct.error:
        raise scan.error("element", at=at, wanted=f"the bits of one {dtype}") from None
    return number


def _parse_affine_map(scan: Scanner) -> AffineMap | None:
    """Parse `(d0, d1) -> (d1, 0, 2 * d0 + d1)`; return None if a result is anything but a sum of loops."""
    names = scan.parse_list("(", lambda: scan.expect(WORD, "a loop's name"), ")")
    if scan.peek(r"\["):
        scan.parse_list("[", lambda: scan.expect(WORD, "a symbol's name"), "]")
    scan.need("->")
    results = scan.parse_list("(", lambda: _parse_affine_sum(scan, {name: n for n, name in enumerate(names)}), ")")
    scan.need(">")
    sums = [{loop: by for loop, by in term.items() if loop is not None} for term in results if term is not None]
    simple = sums == results and all(by > 0 for term in sums for by in term.values())
    return AffineMap(tuple(sums)) if simple else None


def _parse_affine_sum(scan: Scanner, loops: Mapping[str, int], depth: int = 0) -> dict[int | None, int] | None:
    """Return the coefficients of an affine expression, its constant under None; None where it is not linear."""
    if depth > MAX_DEPTH:
        raise scan.error("nested too deeply", wanted=f"at most {MAX_DEPTH} levels")
    total, sign = Counter[int | None](), -1 if scan.mark("-") else 1
    is_linear = True
    while True:
        term = _parse_affine_product(scan, loops, depth)
        is_linear &= term is not None
        for loop, factor in (term or {}).items():
            total[loop] += sign * factor
        if not scan.peek("[-+]"):
            return {loop: factor for loop, factor in total.items() if factor} if is_linear else None
        sign = 1 if scan.mark("+") else -1
        scan.mark("-")


def _parse_affine_product(scan: Scanner, loops: Mapping[str, int], depth: int) -> dict[int | None, int] | None:
    term = _parse_affine_atom(scan, loops, depth)
    while operator := scan.accept(r"\*|floordiv|ceildiv|mod"):
        other = _parse_affine_atom(scan, loops, depth)
        one, many = (other, term) if other is not None and set(other) <= {None} else (term, other)
        if operator != "*" or one is None or many is None or not set(one) <= {None}:
            term = None
        else:
            term = {loop: factor * one.get(None, 0) for loop, factor in many.items()}
    return term


def _parse_affine_atom(scan: Scanner, loops: Mapping[str, int], depth: int) -> dict[int | None, int] | None:
    if scan.mark("("):
        inner = _parse_affine_sum(scan, loops, depth + 1)
        scan.need(")")
        return inner
    if scan.peek("[0-9]"):
        return {None: scan.integer()}
    name = scan.expect(WORD, "an affine expression")
    return {loops[name]: 1} if name in loops else None


def _parse_dialect_attribute(scan: Scanner, depth: int) -> Any:
    """Parse `#mesh.shard<...>`, `#shard<axisarray[[0]]>`, `#mhlo.dot<key = value, ...>` or an alias.

    Of any other attribute, return the last word.
    """
    name = scan.expect(r"#[\w.]+", "an attribute")
    if name == "#mesh.shard":
        return parse_sharding_attribute(scan)
    if not scan.mark("<"):
        return scan.aliases.get(name)
    if scan.word("axisarray"):
        axes = parse_list(scan, depth)
        scan.need(">")
        return axes
    if scan.peek(rf"{WORD}\s*="):
        return parse_dictionary(scan, depth, ">")
    start = scan.at
    _parse_balanced(scan)
    return scan.text[start : scan.at].strip().removesuffix(">").split()[-1]


def _parse_balanced(scan: Scanner) -> None:
    """Skip to behind the `>` that closes the attribute; `->` and strings do not count."""
    depth = 1
    while depth:
        token = scan.expect(r"->|[<>]|" + STRING + r"|[^<>\"-]+|-", "'>'")
        depth += {"<": 1, ">": -1}.get(token, 0)
