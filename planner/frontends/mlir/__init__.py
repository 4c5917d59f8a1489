"""MLIR text: a function with mesh annotations as a graph and its mesh, one with collectives as an SPMD program.

Supported are the mesh dialect as its documents print it (mesh.cluster and mesh.annotate of the RFC; mesh.mesh and
mesh.shard) and as mlir-opt 19 and 20 do (a sharding as attribute or as value), and the shard dialect of mlir-opt 22,
around the operations in `op_names` and `op_handlers`. An annotation is required and applies to the result unless the
text says otherwise. Errors carry line and column.

Why a parser of our own and not xDSL (0.74): xDSL covers func, arith, math, tensor, the newest spelling of shard and
eight tosa operations. The mesh dialect in its three spellings, mhlo, the other tosa operations and all their custom
forms would still be ours to declare and print, which is more code than this recursive descent parser.
"""

from __future__ import annotations

from pathlib import Path

from planner.errors import InvalidDocument, InvalidGraph, ShardplanError, UnsupportedOp
from planner.frontends.mlir.annotation_checks import Annotations, ShardingChecker
from planner.frontends.mlir.attributes import Symbol
from planner.frontends.mlir.call_syntax import canonical_name, is_collective
from planner.frontends.mlir.collectives import translate_operation
from planner.frontends.mlir.device_groups import infer_clusters, is_grouped
from planner.frontends.mlir.module import Function, Module, parse_module
from planner.frontends.mlir.op_handlers import translate_statement
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.program_translation import ProgramTranslation
from planner.frontends.mlir.scanner import Scanner
from planner.frontends.mlir.translation import MlirTranslation
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.spmd import SpmdProgram

MAX_BYTES = 16 << 20


def read_mlir(source: Path | str, function: str | None = None) -> tuple[Graph, Mesh]:
    """Return the graph of a function and its mesh, from a file (Path) or a text (str).

    `function` may be None if only one function has a body. A dim `?` becomes DYNAMIC_DIM. Raises ShardplanError with
    line and column.
    """
    scan, module, chosen = _parse_source(source, function)
    for each in _find_collectives(chosen):
        what, wanted = "collective in a graph", "annotations only; read_spmd reads functions with collectives"
        raise scan.error(what, at=each.at, got=each.name, wanted=wanted, error=UnsupportedOp)
    translation = MlirTranslation(scan, chosen, _build_checks(scan, module, chosen), Annotations(scan))
    try:
        translation.begin()
        for operation in chosen.body or ():
            translate_statement(translation, operation, module)
        return translation.finish()
    except ShardplanError as error:
        raise translation.located(error, chosen.at) from None


def read_spmd(source: Path | str, function: str | None = None) -> SpmdProgram:
    """Return the verified program of a function whose body has collectives and queries on local tensors.

    Raises ShardplanError with line and column, the value, the rule, what was got and what was expected.
    """
    scan, module, chosen = _parse_source(source, function)
    module.clusters = module.clusters or infer_clusters(chosen.body or ())
    layouts = _build_checks(scan, module, chosen)
    translation = ProgramTranslation(scan, chosen, layouts, Annotations(scan), clusters=module.clusters)
    try:
        translation.begin()
        for operation in chosen.body or ():
            translate_operation(translation, operation, module)
        return translation.program()
    except ShardplanError as error:
        raise translation.located(error, chosen.at) from None


def holds_collectives(source: Path | str, function: str | None = None) -> bool:
    """Return whether `read_spmd` reads the function, not `read_mlir`: it has collectives, or queries of the mesh that
    are read or stand alone.

    Raises ShardplanError for a syntax error.
    """
    _, _, chosen = _parse_source(source, function)
    queries = {name for operation in chosen.body or () for name in operation.results if canonical_name(operation.name)}
    read = any(not queries.isdisjoint(operation.operands) for operation in chosen.body or ())
    return read or bool(_find_collectives(chosen)) or (bool(queries) and not chosen.arguments)


def _find_collectives(chosen: Function) -> list[Operation]:
    body = chosen.body or ()
    return [operation for operation in body if is_collective(operation.name) or is_grouped(operation.name)]


def _parse_source(source: Path | str, function: str | None) -> tuple[Scanner, Module, Function]:
    text, name = (source, "text") if isinstance(source, str) else (_read_file(source), str(source))
    scan = Scanner(text, name)
    module = parse_module(scan)
    return scan, module, _find_function(module, function, name)


def _build_checks(scan: Scanner, module: Module, chosen: Function) -> ShardingChecker:
    default = chosen.attrs.get("mesh_cluster")
    return ShardingChecker(scan, module.meshes, default.name if isinstance(default, Symbol) else None)


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InvalidDocument("text too large", where=str(path), wanted=f"at most {MAX_BYTES >> 20} MiB")
        return raw.decode()
    except OSError as error:
        raise InvalidDocument("cannot be read", where=str(path), got=error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise InvalidDocument("not UTF-8 text", where=str(path), got=f"byte {error.start}") from None


def _find_function(module: Module, name: str | None, source: str) -> Function:
    bodies = {each.name: each for each in module.functions.values() if each.body is not None}
    if name is None and len(bodies) == 1:
        return next(iter(bodies.values()))
    if name in bodies:
        return bodies[name]
    wanted = f"one of {', '.join(bodies)}" if bodies else "a func.func with a body"
    raise InvalidGraph(
        "no single function" if name is None else "no such function", where=source, got=name, wanted=wanted
    )
