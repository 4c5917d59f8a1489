"""Operations of MLIR text: the generic form `"d.op"(%a) {...} : (T) -> T`, and the custom forms this subset needs.

d.op %a, %b {...} : T                  also `: (T, T) -> T`, `: T to T`, `: T, T`
linalg.op {...} ins(%a : T) outs(%b : T) dimensions = [1] {...} -> T
d.constant {...} dense<0.0> : T
tensor.extract_slice %a[%i, 0] [4, 8] [1, 1] : T to U
mesh.sharding @m split_axes = [[0]] partial = sum[1] halo_sizes = [1, 2] : !mesh.sharding
mesh.shard %a to %s annotate_for_users {...} : T          or `to <@m, [[0]]>`
func.call @f(%a) : (T) -> T            return %a : T
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.errors import UnsupportedOp
from planner.frontends.mlir.attributes import DenseAttribute, Symbol, parse_attribute, parse_dictionary, parse_list
from planner.frontends.mlir.call_syntax import canonical_name, parse_call
from planner.frontends.mlir.scanner import NAME, STRING, WORD, Scanner, unescape
from planner.frontends.mlir.sharding_syntax import parse_numbers, parse_sharding, parse_sharding_attribute
from planner.frontends.mlir.types import MlirType, parse_type, parse_types

MAX_DEPTH = 8
COMBINER = r"\{\s*(?:arith|math)\.\w+\s*(?:\{[^{}]*\}\s*)?\}"
SHARDINGS = ("mesh.sharding", "shard.sharding")
SHARDS = ("mesh.shard", "shard.shard")
CALLS = ("func.call", "call")
CONTROL_FLOW = ("cf", "scf")
"""Dialects whose operations branch or loop."""
NAMES_WITHOUT_OPERANDS = ("return", "func.return", "linalg.yield")
SUBSET = "elementwise arith, math, tosa, mhlo; linalg; constants; calls; mesh and shard annotations"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, with values by their names in the text; `at` is its position.

    `inits` are linalg's `outs`, `parameters` the arguments of its body.
    """

    name: str
    at: int
    results: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    inits: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    operand_types: tuple[MlirType, ...] = ()
    result_types: tuple[MlirType, ...] = ()
    parameters: tuple[str, ...] = ()
    body: tuple[Operation, ...] = ()


@dataclass
class _OperationDraft:
    """The parts of an operation that are parsed so far."""

    operands: list[str] = field(default_factory=list)
    inits: list[str] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    operand_types: tuple[MlirType, ...] = ()
    result_types: tuple[MlirType, ...] = ()
    parameters: list[str] = field(default_factory=list)
    body: list[Operation] = field(default_factory=list)


def parse_operations(scan: Scanner, depth: int = 0) -> tuple[Operation, ...]:
    """Parse operations up to and including the closing brace. Raises InvalidDocument for a second block."""
    if depth > MAX_DEPTH:
        raise scan.error("nested too deeply", wanted=f"at most {MAX_DEPTH} levels")
    operations: list[Operation] = []
    while not scan.mark("}"):
        if scan.peek(r"\^"):
            raise scan.error("more than one block", wanted="only one block")
        operations.append(parse_operation(scan, depth))
    return tuple(operations)


def parse_operation(scan: Scanner, depth: int = 0) -> Operation:
    """Parse one operation. Raises InvalidDocument, UnsupportedOp."""
    results = _parse_results(scan) if scan.peek("%") else ()
    at = scan.at
    draft, is_generic = _OperationDraft(), scan.peek('"')
    name = unescape(scan.expect(STRING, "an operation")) if is_generic else scan.expect(WORD, "an operation")
    if name.partition(".")[0] in CONTROL_FLOW:
        wanted = "a function of one block, without control flow"
        raise scan.error("operation outside the subset", at=at, got=name, wanted=wanted, error=UnsupportedOp)
    if is_generic:
        _parse_generic(scan, draft, depth)
    else:
        _parse_custom(scan, name, at, draft=draft, depth=depth)
    if len(results) > 1 and len(draft.result_types) != len(results):
        raise scan.error("number of results", at=at, got=len(results), wanted=str(len(draft.result_types)))
    return Operation(
        name,
        at,
        results,
        tuple(draft.operands),
        tuple(draft.inits),
        draft.attrs,
        draft.operand_types,
        draft.result_types,
        tuple(draft.parameters),
        tuple(draft.body),
    )


def _parse_results(scan: Scanner) -> tuple[str, ...]:
    """Parse `%a, %b:2 =`; return the names a, b, b#1."""

    def result() -> list[str]:
        name = scan.expect(f"%{NAME}", "a value")[1:]
        count = int(scan.expect(r"[0-9]{1,4}", "a number of results")) if scan.mark(":") else 1
        return [f"{name}#{k}" if k else name for k in range(count)]

    return tuple(name for names in scan.parse_list("", result, "=") for name in names)


def _parse_custom(scan: Scanner, name: str, at: int, *, draft: _OperationDraft, depth: int) -> None:
    if name.startswith("linalg.") and name != "linalg.yield":
        _parse_linalg(scan, draft, depth)
    elif name in SHARDINGS:
        _parse_sharding(scan, draft)
    elif name in SHARDS:
        _parse_shard(scan, draft)
    elif name in CALLS:
        draft.attrs["callee"] = Symbol(scan.symbol())
        draft.operands = _parse_parenthesized(scan)
        _parse_tail(scan, draft)
    elif canonical_name(name):
        call = parse_call(scan)
        draft.operands, draft.attrs = call.operands, call.attrs
        draft.operand_types, draft.result_types = call.operand_types, call.result_types
    elif name.endswith(".constant"):
        _parse_constant(scan, draft)
    else:
        _parse_plain(scan, name, at, draft=draft)


def _parse_constant(scan: Scanner, draft: _OperationDraft) -> None:
    draft.attrs |= parse_dictionary(scan) if scan.peek(r"\{") else {}
    start = scan.at
    value = parse_attribute(scan)
    if not isinstance(value, DenseAttribute):
        value = DenseAttribute(value if isinstance(value, int | float) else None, "scalar")
    draft.attrs["value"] = value
    draft.result_types = (value.type,)
    if value.value is None and value.type == "scalar":
        raise scan.error("constant", at=start, wanted="a number or dense<...>")


def _parse_plain(scan: Scanner, name: str, at: int, *, draft: _OperationDraft) -> None:
    """Parse operands, the lists of a slice, attributes and types."""
    draft.operands = _parse_parenthesized(scan) if scan.peek(r"\(") else _parse_values(scan)
    if name == "tensor.extract_slice":
        draft.attrs |= {key: parse_numbers(scan) for key in ("offsets", "sizes", "strides")}
    scan.accept(r"fastmath\s*<[\w\s,]*>")
    if not scan.peek(r"[{:}]") and name not in NAMES_WITHOUT_OPERANDS:
        raise scan.error("operation outside the subset", at=at, got=name, wanted=SUBSET, error=UnsupportedOp)
    _parse_tail(scan, draft)


def _parse_generic(scan: Scanner, draft: _OperationDraft, depth: int) -> None:
    draft.operands = _parse_parenthesized(scan)
    if scan.mark("<"):
        draft.attrs |= parse_dictionary(scan)
        scan.need(">")
    if scan.mark("("):
        scan.need("{")
        _parse_region(scan, draft, depth)
        scan.need(")")
    _parse_tail(scan, draft)


def _parse_tail(scan: Scanner, draft: _OperationDraft) -> None:
    """Parse `{...} : types`. A single type without an arrow is that of all operands and of the result."""
    draft.attrs |= parse_dictionary(scan) if scan.peek(r"\{") else {}
    if not scan.mark(":"):
        return
    types = list(parse_types(scan))
    while scan.mark(","):
        types.append(parse_type(scan))
    if scan.mark("->") or scan.word("to"):
        draft.operand_types, draft.result_types = tuple(types), parse_types(scan)
    else:
        count = len(draft.operands)
        draft.operand_types = tuple(types * count if len(types) == 1 else types if len(types) == count else ())
        draft.result_types = tuple(types[-1:])


def _parse_values(scan: Scanner) -> list[str]:
    values: list[str] = []
    while scan.peek("%"):
        values.append(scan.value())
        if not scan.mark(","):
            break
    return values


def _parse_parenthesized(scan: Scanner) -> list[str]:
    return scan.parse_list("(", scan.value, ")")


def _parse_linalg(scan: Scanner, draft: _OperationDraft, depth: int) -> None:
    if scan.peek(COMBINER):
        draft.body = [_parse_combiner(scan)]
    elif scan.peek(r"\{"):
        draft.attrs |= parse_dictionary(scan)
    if scan.word("ins"):
        draft.operands, draft.operand_types = _parse_typed_values(scan)
    if not scan.word("outs"):
        raise scan.error("syntax", wanted="ins(...) outs(...)")
    draft.inits, draft.result_types = _parse_typed_values(scan)
    while key := scan.accept(r"(?:dimensions|permutation)(?=\s*=)"):
        scan.need("=")
        draft.attrs[key] = parse_list(scan)
    if scan.peek(rf"(?:attrs\s*=\s*)?\{{\s*(?:\}}|(?:{WORD}|{STRING})\s*[=,}}])"):
        scan.accept(r"attrs\s*=")
        draft.attrs |= parse_dictionary(scan)
    _parse_linalg_body(scan, draft, depth)


def _parse_linalg_body(scan: Scanner, draft: _OperationDraft, depth: int) -> None:
    if scan.peek(r"\("):
        draft.parameters = _parse_parameters(scan)
    if scan.mark("{"):
        _parse_region(scan, draft, depth)
    if scan.mark("->"):
        draft.result_types = parse_types(scan)


def _parse_combiner(scan: Scanner) -> Operation:
    """Parse `{ arith.addf }`: one operation on all arguments of the body."""
    scan.need("{")
    at = scan.at
    name = scan.expect(WORD, "an operation")
    if scan.peek(r"\{"):
        parse_dictionary(scan)
    scan.need("}")
    return Operation(name, at)


def _parse_typed_values(scan: Scanner) -> tuple[list[str], tuple[MlirType, ...]]:
    """Parse `(%a, %b : T, T)`."""
    at = scan.at
    scan.need("(")
    values = _parse_values(scan)
    scan.need(":")
    types = [parse_type(scan)]
    while scan.mark(","):
        types.append(parse_type(scan))
    scan.need(")")
    if len(types) != len(values):
        raise scan.error("number of types", at=at, got=len(types), wanted=f"{len(values)}, one per value")
    return values, tuple(types)


def _parse_parameters(scan: Scanner) -> list[str]:
    """Parse `(%a: f32, %b: f32)`; return the names."""

    def parameter() -> str:
        name = scan.value()
        scan.need(":")
        parse_type(scan)
        return name

    return scan.parse_list("(", parameter, ")")


def _parse_region(scan: Scanner, draft: _OperationDraft, depth: int) -> None:
    if scan.accept(r"\^\w+"):
        draft.parameters = _parse_parameters(scan)
        scan.need(":")
    draft.body = list(parse_operations(scan, depth + 1))


def _parse_sharding(scan: Scanner, draft: _OperationDraft) -> None:
    draft.attrs["sharding"] = parse_sharding(scan)
    draft.attrs |= parse_dictionary(scan) if scan.peek(r"\{") else {}
    # The documents' examples leave the type out.
    draft.result_types = (parse_type(scan),) if scan.mark(":") else ()


def _parse_shard(scan: Scanner, draft: _OperationDraft) -> None:
    draft.operands = [scan.value()]
    if not scan.word("to"):
        raise scan.error("syntax", wanted="to %sharding")
    if scan.peek("%"):
        draft.attrs["layout"] = scan.value()
    else:
        draft.attrs["sharding"] = parse_sharding_attribute(scan, trailing_partial=False)
    draft.attrs["annotate_for_users"] = scan.word("annotate_for_users")
    _parse_tail(scan, draft)
