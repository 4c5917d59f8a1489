"""Collectives and queries of the dialect as texts write them.

mesh.all_gather %a on @m mesh_axes = [1] gather_axis = 0 {...} : T -> U        shard: grid_axes
mesh.broadcast %a on @m mesh_axes = [0] root = [%i] : (T, index) -> T
shard.update_halo %a on @m split_axes = [[0]] halo_sizes = [1, %n] : T
mesh.update_halo %a into %b on @m split_axes = [[0]] source_halo_sizes = [1, 2] destination_halo_sizes = [2, 2] : T -> U
mesh.mesh_shape @m axes = [0] : index
shard.shard_shape dims = [8, %n] sharding = %s device = [0, 3] : index, index      also `8x4 %s %device`, `device = %d`
mesh.collective_permute %a on @m mesh_axes = [0] pairs = [[0, 1]] : T -> T         also `target = @n`
mesh.all_gather %a {mesh_axis = [[], [0]]} : T -> U                                the RFC's, on sharded types
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.frontends.mlir.attributes import Symbol, parse_dictionary, parse_list
from planner.frontends.mlir.scanner import WORD, Scanner
from planner.frontends.mlir.sharding_syntax import parse_numbers
from planner.frontends.mlir.types import MlirType, parse_type, parse_types
from planner.spmd.op_table import LOCAL, MESH_SHAPE_OPS, SPMD_OPS

LEGACY_NAMES = {"grid_shape": "mesh_shape", "local_split": "all_slice"}
KEYS = {
    "grid_axes": "mesh_axes",
    "grid": "mesh",
    "dims": "shape",
    "target_halo_sizes": "destination_halo_sizes",
    "static_halo_sizes": "halo_sizes",
}
"""Keys of other versions of the dialect -> keys of the table."""


@dataclass
class Clauses:
    """What follows an op's name: operands, attributes, types. A dynamic number is the name of a value."""

    operands: list[str] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    operand_types: tuple[MlirType, ...] = ()
    result_types: tuple[MlirType, ...] = ()


def canonical_name(name: str) -> str | None:
    """Return the table's name of a collective or query; None for any other operation."""
    dialect, _, word = name.partition(".")
    word = LEGACY_NAMES.get(word, word)
    has_row = word in SPMD_OPS and word not in {row.name for row in LOCAL}
    return word if dialect in ("mesh", "shard") and has_row else None


def is_collective(name: str) -> bool:
    """Return whether an operation makes its function an SPMD program: any call except the RFC's two queries."""
    word = canonical_name(name)
    return word is not None and word not in MESH_SHAPE_OPS


def parse_call(scan: Scanner) -> Clauses:
    """Parse what follows the name of a collective or query. Raises InvalidDocument."""
    found = Clauses()
    if scan.peek(r"\("):
        found.operands = scan.parse_list("(", scan.value, ")")
    elif scan.peek("%"):
        found.operands.append(scan.value())
    if scan.word("into"):
        found.operands.append(scan.value())
    if scan.peek(r"[0-9?]+(?:x[0-9?]+)*\s*%"):
        _parse_legacy_shape(scan, found)
    while not scan.peek(r"[{:}]") and scan.at < len(scan.text):
        _parse_clause(scan, found)
    found.attrs |= parse_dictionary(scan) if scan.peek(r"\{") else {}
    if scan.mark(":"):
        _parse_signature(scan, found)
    return found


def _parse_legacy_shape(scan: Scanner, found: Clauses) -> None:
    """Parse `8x4 %sharding %device`."""
    sizes = scan.expect(r"(?:[0-9]{1,15}|\?)(?:x(?:[0-9]{1,15}|\?))*(?!\w)", "sizes: 8x4").split("x")
    if "?" in sizes:
        raise scan.error(
            "shape of a tensor", got="x".join(sizes), wanted="sizes, or dims = [%size] for a size known at run time"
        )
    found.attrs |= {"shape": tuple(map(int, sizes)), "sharding": scan.value(), "device": scan.value()}


def _parse_clause(scan: Scanner, found: Clauses) -> None:
    at = scan.at
    value: Any
    if scan.word("on") or scan.peek("@"):
        key, value = "mesh", Symbol(scan.symbol())
    elif scan.word("rotate"):
        key, value = "rotate", True
    else:
        key = scan.expect(WORD, "on @mesh, rotate, or key = value")
        scan.need("=")
        value = _parse_value(scan)
    if key in found.attrs:
        raise scan.error("key repeated", at=at, wanted="every key once")
    found.attrs[key] = value


def _parse_value(scan: Scanner) -> Any:
    if scan.peek(r"\["):
        return parse_list(scan) if scan.peek(r"\[\s*\[") else parse_numbers(scan)
    if scan.mark("<"):
        kind = scan.expect(WORD, "a reduction")
        scan.need(">")
        return kind
    if scan.peek("@"):
        return Symbol(scan.symbol())
    return scan.value() if scan.peek("%") else scan.accept(WORD) or scan.integer()


def _parse_signature(scan: Scanner, found: Clauses) -> None:
    """Parse `T -> U` or `(T, index) -> U`; without an arrow, the types are the results'."""
    listed = parse_types(scan)
    while scan.mark(","):
        listed = (*listed, parse_type(scan))
    if scan.mark("->"):
        found.operand_types, found.result_types = listed, parse_types(scan)
    else:
        found.result_types = listed
