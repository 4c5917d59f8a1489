"""StableHLO text -> a verified module of jaxlib, or an error with its line."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from planner.errors import InvalidDocument, InvalidGraph
from planner.ir.graph import MAX_RANK

MAX_BYTES = 64 << 20
MAX_SECONDS = 60
MAX_DEPTH = 500
"""Brackets inside each other: the parser calls itself for each, and from some thousands on its stack overflows."""
OPENING, CLOSING = np.frombuffer(b"([{<", np.uint8), np.frombuffer(b")]}>", np.uint8)
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_MANY_DIMS = re.compile(rb"(?:\d+x){%d}" % (MAX_RANK + 1))
_PLACE = re.compile(r'error: "-":(\d+):(\d+): (.*)')


def make_context() -> ir.Context:
    """Return a context with the dialects that JAX writes."""
    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    return context


def parse_text(text: str, where: str) -> ir.Module:
    """Return the module of a text. Raises InvalidDocument with line and column."""
    if len(text) > MAX_BYTES:
        raise InvalidDocument("text too large", where=where, got=len(text), wanted=f"at most {MAX_BYTES} characters")
    _check_shape(text, where)
    try:
        with make_context():
            return ir.Module.parse(text)
    except ir.MLIRError as error:
        raise _parse_error(str(error), where) from None
    except MemoryError:
        raise _parse_error("sizes that exhaust the memory", where) from None


def _check_shape(text: str, where: str) -> None:
    """Refuse what the parser would crash on, or read for minutes: deep nesting, and types of thousands of dims."""
    plain = _QUOTED.sub("", text).encode()
    if matched := _MANY_DIMS.search(plain):
        line = plain.count(b"\n", 0, matched.start()) + 1
        raise InvalidDocument("rank too high", where=f"{where}: line {line}", wanted=f"at most {MAX_RANK}")
    raw = np.frombuffer(plain, np.uint8)
    opened, closed = np.isin(raw, OPENING), np.isin(raw, CLOSING)
    closed[1:] &= ~((raw[1:] == ord(">")) & (raw[:-1] == ord("-")))  # arrows
    brackets = np.flatnonzero(opened | closed)
    depth = np.cumsum(np.where(opened[brackets], 1, -1))
    if depth.size and depth.max() > MAX_DEPTH:
        line = plain.count(b"\n", 0, int(brackets[np.argmax(depth > MAX_DEPTH)])) + 1
        raise InvalidDocument("nested too deeply", where=f"{where}: line {line}", wanted=f"at most {MAX_DEPTH} levels")


def read_text(path: Path) -> str:
    """Return the text of a file, plain or gzip. Raises InvalidDocument."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidDocument("damaged gzip file", where=str(path), got=str(error)) from None
    except OSError as error:
        raise InvalidDocument("cannot be read", where=str(path), got=error.strerror or str(error)) from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidDocument("not UTF-8 text", where=str(path), got=f"byte {error.start}") from None


def parse_in_subprocess(text: str, where: str) -> None:
    """Parse in a subprocess. Raises InvalidDocument if parsing crashes that process or takes over MAX_SECONDS."""
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=MAX_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        got, wanted = f"{MAX_SECONDS} s of parsing", "text of jax's lower(...).as_text()"
        raise InvalidDocument("not StableHLO", where=where, got=got, wanted=wanted) from None
    if done.returncode:
        got = f"the parser ended with code {done.returncode}: {done.stderr.decode(errors='replace')[-80:]}"
        raise InvalidDocument("not StableHLO", where=where, got=got, wanted="text of jax's lower(...).as_text()")


def _parse_error(message: str, where: str) -> InvalidDocument:
    matched = _PLACE.search(message)
    if matched is None:
        return InvalidDocument("not StableHLO", where=where, got=message, wanted="text of jax's lower(...).as_text()")
    place = f"{where}: line {matched[1]} column {matched[2]}"
    return InvalidDocument("not StableHLO", where=place, got=matched[3], wanted="text of jax's lower(...).as_text()")


def list_functions(module: ir.Module, where: str) -> dict[str, ir.Operation]:
    """Return the module's functions by name. Raises InvalidGraph if `main` is missing."""
    functions = {}
    for each in module.body.operations:
        if each.operation.name == "func.func":
            functions[str(each.attributes["sym_name"].value)] = each.operation
    if "main" not in functions:
        raise InvalidGraph("no function @main", where=where, got=list(functions), wanted="a module with @main")
    return functions


if __name__ == "__main__":
    with suppress(InvalidDocument):
        parse_text(sys.stdin.read(), "text")
