"""Modules of MLIR text: mesh declarations and functions.

A mesh is `mesh.mesh @m(shape = 2x?)`, `shard.grid @m(shape = 2x4)`, or the RFC's
`mesh.cluster @m(rank = 2, dim_sizes = [4])`, where a size that is missing or 0 or less is unknown. The slides'
`mesh.sub_cluster @row(cluster = @m, at = [1, ?])` is the part of a mesh at these coordinates; axes with `?` stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.errors import InvalidMesh, ShardplanError, UnsupportedOp
from planner.frontends.mlir.attributes import parse_attribute, parse_dictionary
from planner.frontends.mlir.generic_module import parse_body, parse_end, parse_properties, parse_sizes
from planner.frontends.mlir.operations import Operation, parse_operations
from planner.frontends.mlir.scanner import NAME, Scanner
from planner.frontends.mlir.sharding_syntax import parse_axes
from planner.frontends.mlir.types import MlirType, parse_type
from planner.ir.mesh import Mesh, MeshAxis
from planner.spmd import Cluster, select_sub_cluster

MESHES = ("mesh.mesh", "mesh.cluster", "shard.grid")
SUB_CLUSTER = "mesh.sub_cluster"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a function; in a declaration its name is empty."""

    name: str
    at: int
    type: MlirType
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A function; the body of a declaration is None."""

    name: str
    at: int
    arguments: tuple[Argument, ...]
    result_types: tuple[MlirType, ...]
    attrs: Mapping[str, Any]
    body: tuple[Operation, ...] | None


@dataclass
class Module:
    """The meshes (as clusters) and functions that a text declares."""

    clusters: dict[str, Cluster] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    @property
    def meshes(self) -> dict[str, Mesh]:
        return {name: cluster.mesh for name, cluster in self.clusters.items()}


def parse_module(scan: Scanner) -> Module:
    """Parse the text to its end. Raises InvalidDocument, InvalidMesh, UnsupportedOp with the place."""
    module = Module()
    wrapped = 0
    while scan.at < len(scan.text):
        if alias := scan.accept(r"#\w+(?=\s*=)"):
            scan.need("=")
            scan.aliases[alias] = parse_attribute(scan)
        elif scan.accept(r"(?:builtin\.)?module(?![\w.])"):
            wrapped += _parse_module_head(scan)
        elif wrapped and scan.mark("}"):
            wrapped -= 1
            _skip_module_tail(scan)
        elif scan.accept(r'"builtin\.module"'):
            for mark in ("(", ")", "(", "{"):
                scan.need(mark)
            wrapped += 1
        else:
            _parse_declaration(scan, module)
    if wrapped:
        raise scan.error("syntax", wanted="'}'")
    return module


def _parse_module_head(scan: Scanner) -> int:
    if scan.peek("@"):
        scan.symbol()
    if scan.word("attributes"):
        parse_dictionary(scan)
    scan.need("{")
    return 1


def _skip_module_tail(scan: Scanner) -> None:
    """Skip `) {...} : () -> ()` behind a module in the generic form."""
    if scan.mark(")"):
        parse_end(scan)


def _parse_declaration(scan: Scanner, module: Module) -> None:
    at, is_generic = scan.at, scan.peek('"')
    word = scan.expect(r'"?[A-Za-z_][\w.]*"?', "a mesh or a function").strip('"')
    if is_generic and word in (*MESHES, "func.func"):
        name, is_repeated = _parse_generic(scan, module, word, at=at)
    elif word in (*MESHES, SUB_CLUSTER):
        name = scan.symbol()
        is_repeated = name in module.clusters
        module.clusters[name] = _parse_sub_cluster(scan, module, at) if word == SUB_CLUSTER else _parse_mesh(scan, at)
    elif word == "func.func":
        function = _parse_function(scan, at)
        name, is_repeated = function.name, function.name in module.functions
        module.functions[name] = function
    else:
        wanted = f"func.func or one of {', '.join((*MESHES, SUB_CLUSTER))}"
        raise scan.error("operation outside a function", at=at, got=word, wanted=wanted, error=UnsupportedOp)
    if is_repeated:
        raise scan.error("symbol declared twice", at=at, got=f"@{name}", wanted="different names")


def _parse_mesh(scan: Scanner, at: int) -> Cluster:
    """Parse a mesh, and the numbers of its devices if our printer's attribute lists them."""
    fields: dict[str, Any] = dict(scan.parse_list("(", lambda: _parse_field(scan), ")"))
    attrs = parse_dictionary(scan) if scan.peek(r"\{") else {}
    return _build_cluster(
        scan, fields.get("shape", fields.get("dim_sizes", [])), fields.get("rank"), attrs=attrs, at=at
    )


def _build_cluster(
    scan: Scanner, sizes: list[int | None] | None, rank: int | None, *, attrs: Mapping[str, Any], at: int
) -> Cluster:
    if sizes is None:
        raise scan.error("shape of a mesh", at=at, wanted="sizes", error=InvalidMesh)
    rank = len(sizes) if rank is None else rank
    if rank < 1:
        raise scan.error("rank of a mesh", at=at, got=rank, wanted="a positive whole number", error=InvalidMesh)
    if len(sizes) > rank:
        raise scan.error("number of dim_sizes", at=at, got=len(sizes), wanted=f"at most {rank}", error=InvalidMesh)
    sizes = [*sizes, *[None] * (rank - len(sizes))]
    try:
        mesh = Mesh(_build_axes(sizes, attrs), attrs.get("shardplan.device"))
        devices = attrs.get("shardplan.devices", [])
        if not isinstance(devices, list) or not all(isinstance(each, int) for each in devices):
            raise InvalidMesh("devices of a mesh", got=devices, wanted="a list of numbers")
        return Cluster(mesh, tuple(devices))
    except ShardplanError as error:
        raise error.at(scan.place(at)) from None


def _parse_generic(scan: Scanner, module: Module, word: str, *, at: int) -> tuple[str, bool]:
    """Parse a declaration in the generic form; return its name, and whether there is another of it."""
    fields = parse_properties(scan)
    name = fields.get("sym_name")
    if not isinstance(name, str):
        raise scan.error("attribute sym_name", at=at, got=name, wanted="a name")
    if word in MESHES:
        attrs, is_repeated = parse_end(scan), name in module.clusters
        module.clusters[name] = _build_cluster(scan, parse_sizes(fields.get("shape")), None, attrs=attrs, at=at)
        return name, is_repeated
    read, body = parse_body(scan)
    given, is_repeated = fields.get("arg_attrs", []), name in module.functions
    kept = [*given, *[{}] * len(read)] if isinstance(given, list) else [{}] * len(read)
    arguments = tuple(
        Argument(*each, attrs if isinstance(attrs, dict) else {}) for each, attrs in zip(read, kept, strict=False)
    )
    results = fields.get("function_type", ())
    module.functions[name] = Function(name, at, arguments, results, {**fields, **parse_end(scan)}, body)
    return name, is_repeated


def _parse_sub_cluster(scan: Scanner, module: Module, at: int) -> Cluster:
    """Parse `(cluster = @m, at = [1, ?])`."""
    for mark in ("(", "cluster", "="):
        scan.need(mark)
    whole = scan.symbol()
    for mark in (",", "at", "="):
        scan.need(mark)
    places = scan.parse_list("[", lambda: None if scan.mark("?") else scan.integer(), "]")
    scan.need(")")
    if whole not in module.clusters:
        declared = ", ".join(f"@{name}" for name in module.clusters) or "a mesh declared above"
        raise scan.error("undefined mesh", at=at, got=f"@{whole}", wanted=declared, error=InvalidMesh)
    cluster = module.clusters[whole]
    if len(places) != len(cluster.mesh.axes):
        wanted = f"{len(cluster.mesh.axes)}, one per axis"
        raise scan.error("coordinates of a sub_cluster", at=at, got=len(places), wanted=wanted, error=InvalidMesh)
    fixed = {axis: place for axis, place in enumerate(places) if place is not None}
    try:
        return select_sub_cluster(cluster, fixed)
    except ShardplanError as error:
        raise error.at(scan.place(at)) from None


def _parse_field(scan: Scanner) -> tuple[str, Any]:
    key = scan.expect(r"rank|dim_sizes|shape", "rank, dim_sizes or shape")
    scan.need("=")
    return key, scan.integer() if key == "rank" else _parse_sizes(scan)


def _build_axes(sizes: list[int | None], attrs: Mapping[str, Any]) -> tuple[MeshAxis, ...]:
    """Build the axes, named by our printer's attribute or else by position."""
    names = attrs.get("shardplan.axes") or []
    names = names if isinstance(names, list) and len(names) == len(sizes) else range(len(sizes))
    links = attrs.get("shardplan.links") or {}
    return tuple(MeshAxis(str(name), size, links.get(str(name))) for name, size in zip(names, sizes, strict=True))


def _parse_sizes(scan: Scanner) -> list[int | None]:
    """Parse `2x?x4`, or the RFC's `[2, 4]`; an unknown size is None."""
    if scan.peek(r"\["):
        return [size if size > 0 else None for size in parse_axes(scan)]
    text = scan.expect(r"(?:[0-9]{1,9}|\?)(?:x(?:[0-9]{1,9}|\?))*(?!\w)", "sizes: 2x4")
    return [None if size == "?" else int(size) for size in text.split("x")]


def _parse_function(scan: Scanner, at: int) -> Function:
    scan.accept(r"(?:private|public|nested)(?!\w)")
    name = scan.symbol()
    arguments = _parse_arguments(scan)
    results = _parse_result_types(scan) if scan.mark("->") else ()
    attrs = parse_dictionary(scan) if scan.word("attributes") else {}
    body = parse_operations(scan) if scan.mark("{") else None
    return Function(name, at, arguments, results, attrs, body)


def _parse_arguments(scan: Scanner) -> tuple[Argument, ...]:
    def argument() -> Argument:
        at, name = scan.at, ""
        if scan.peek(f"%{NAME}"):
            name = scan.value()
            scan.need(":")
        kind = parse_type(scan)
        return Argument(name, at, kind, parse_dictionary(scan) if scan.peek(r"\{") else {})

    return tuple(scan.parse_list("(", argument, ")"))


def _parse_result_types(scan: Scanner) -> tuple[MlirType, ...]:
    def result() -> MlirType:
        kind = parse_type(scan)
        if scan.peek(r"\{"):
            parse_dictionary(scan)
        return kind

    return tuple(scan.parse_list("(", result, ")")) if scan.peek(r"\(") else (parse_type(scan),)
