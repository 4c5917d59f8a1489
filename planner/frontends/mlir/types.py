"""Types of MLIR text."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import InvalidGraph, ShardplanError
from planner.frontends.dtypes import FROM_MLIR
from planner.frontends.mlir.scanner import Scanner
from planner.frontends.mlir.sharding_syntax import ShardingSyntax, parse_sharding_attribute
from planner.ir.dynamic_dims import DYNAMIC_DIM
from planner.ir.graph import TensorType

SCALAR = r"(?:index|none|(?:f|bf|i|si|ui)[0-9]\w*)(?![\w.])"


@dataclass(frozen=True, slots=True)
class MlirTensorType:
    """A ranked tensor type with the sharding in its encoding, if any; a dim `?` is DYNAMIC_DIM."""

    type: TensorType
    encoding: ShardingSyntax | None = None


MlirType = MlirTensorType | str
"""A tensor type, or any other type as text."""


def parse_type(scan: Scanner) -> MlirType:
    """Parse a type; a memref of the default layout is the tensor that it holds.

    Raises InvalidDocument, and InvalidGraph for a tensor that no graph can have.
    """
    at = scan.at
    shaped = scan.accept(r"(?:tensor|memref)\s*<")
    if shaped is None:
        return scan.accept(r"![\w.]+") or scan.expect(SCALAR, "a type")
    if scan.peek(r"\*"):
        raise scan.error(
            "unranked tensor", at=at, got="tensor<*x...>", wanted="a tensor of known rank", error=InvalidGraph
        )
    dims = scan.expect(r"(?:(?:[0-9]{1,15}|\?)x)*", "dims").split("x")[:-1]
    element = scan.expect(r"[A-Za-z][\w.]*(?:\s*<[^<>]*>)?", "an element type")
    if shaped.startswith("memref") and scan.peek(","):
        raise scan.error("layout of a memref", at=at, wanted="the default one", error=InvalidGraph)
    encoding = _parse_encoding(scan) if scan.mark(",") else None
    scan.need(">")
    if element not in FROM_MLIR:
        raise scan.error("element type", at=at, got=element, wanted=", ".join(FROM_MLIR), error=InvalidGraph)
    try:
        shape = tuple(DYNAMIC_DIM if dim == "?" else int(dim) for dim in dims)
        return MlirTensorType(TensorType(shape, FROM_MLIR[element]), encoding)
    except ShardplanError as error:
        raise error.at(scan.place(at)) from None


def _parse_encoding(scan: Scanner) -> ShardingSyntax:
    at = scan.at
    if (alias := scan.accept(r"#[\w$]+(?![\w$.])")) is not None:
        sharding = scan.aliases.get(alias)
        if not isinstance(sharding, ShardingSyntax):
            raise scan.error("encoding", at=at, got=alias, wanted="the alias of a #mesh.shard<...>")
        return sharding
    scan.expect(r"#mesh\.shard(?=\s*<)", "#mesh.shard<...>")
    return parse_sharding_attribute(scan)


def parse_types(scan: Scanner) -> tuple[MlirType, ...]:
    """Parse `T` or `(T, ...)`."""
    if not scan.mark("("):
        return (parse_type(scan),)
    return tuple(scan.parse_list("", lambda: parse_type(scan), ")"))
