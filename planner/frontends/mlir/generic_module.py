"""Declarations in MLIR's generic form, as mlir-opt prints them with --mlir-print-op-generic.

"mesh.mesh"() <{shape = array<i64: 2, -9223372036854775808>, sym_name = "m"}> : () -> ()
"func.func"() <{function_type = (T) -> U, sym_name = "f"}> ({ ^bb0(%a: T): ... }) {...} : () -> ()

The smallest number of 64 bits stands for an unknown size.
"""

from __future__ import annotations

from typing import Any

from planner.frontends.mlir.attributes import parse_attribute, parse_dictionary
from planner.frontends.mlir.operations import Operation, parse_operations
from planner.frontends.mlir.scanner import STRING, WORD, Scanner
from planner.frontends.mlir.types import MlirType, parse_type, parse_types

SENTINEL = -(1 << 63)


def parse_properties(scan: Scanner) -> dict[str, Any]:
    """Parse `() <{key = value, ...}>`; a function's type is its result types."""
    for mark in ("(", ")", "<"):
        scan.need(mark)
    entries: dict[str, Any] = {}

    def entry() -> None:
        key = scan.expect(f"{WORD}|{STRING}", "a key")
        if key == "function_type" and scan.mark("="):
            parse_types(scan)
            scan.need("->")
            entries[key] = parse_types(scan)
        else:
            entries[key] = parse_attribute(scan) if scan.mark("=") else True

    scan.parse_list("{", entry, "}")
    scan.need(">")
    return entries


def parse_sizes(given: object) -> list[int | None] | None:
    """Return the sizes of a mesh; None where the attribute is no list of numbers."""
    if not isinstance(given, list) or not all(isinstance(size, int) for size in given):
        return None
    return [None if size == SENTINEL else size for size in given]


def parse_body(scan: Scanner) -> tuple[list[tuple[str, int, MlirType]], tuple[Operation, ...] | None]:
    """Parse `({ ^bb0(%a: T): ... })`; return the arguments (name, place, type) and the body, None of a declaration."""
    scan.need("(")
    scan.need("{")
    arguments: list[tuple[str, int, MlirType]] = []

    def argument() -> tuple[str, int, MlirType]:
        at, name = scan.at, scan.value()
        scan.need(":")
        return name, at, parse_type(scan)

    if scan.accept(r"\^\w+"):
        arguments = scan.parse_list("(", argument, ")") if scan.peek(r"\(") else []
        scan.need(":")
    operations = parse_operations(scan)
    scan.need(")")
    return arguments, operations or None


def parse_end(scan: Scanner) -> dict[str, Any]:
    """Parse `{...} : () -> ()`; return the attributes."""
    attrs = parse_dictionary(scan) if scan.peek(r"\{") else {}
    scan.need(":")
    parse_types(scan)
    scan.need("->")
    parse_types(scan)
    return attrs
