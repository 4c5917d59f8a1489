"""Reads JSON from files or bytes within limits, so that a hostile document ends in one clear error."""

from __future__ import annotations

import gc
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from planner.errors import InvalidDocument

MAX_BYTES = 16 << 20
MAX_VALUES = 1_200_000
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(path: Path) -> Any:
    """Return the JSON in a file, gzip or plain, up to 16 MiB decompressed. Raises InvalidDocument."""
    return parse_json(_read_bytes(path), str(path))


def read_text(path: Path) -> str:
    """Return the text in a file, gzip or plain, up to 16 MiB decompressed. Raises InvalidDocument."""
    try:
        return _read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidDocument("not UTF-8 text", where=str(path), got=f"byte {error.start}") from None


def read_json_lines(path: Path) -> list[Any]:
    """Return the JSON in each line of a file; a line that is not JSON is its text."""
    return [_parse_line(line) for line in read_text(path).removesuffix("\n").split("\n")]


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def read_compressed(raw: bytes, where: str) -> Any:
    """Return the JSON in bytes, gzip or plain, up to 16 MiB decompressed. Raises InvalidDocument."""
    return parse_json(_decompress(BytesIO(raw), where), where)


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return _decompress(file, str(path))
    except OSError as error:
        raise InvalidDocument("cannot be read", where=str(path), got=error.strerror or str(error)) from None


def _decompress(file: BinaryIO, where: str) -> bytes:
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    try:
        return _read_bounded(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file, where)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidDocument("damaged gzip file", where=where, got=str(error)) from None


def parse_json(raw: bytes, where: str) -> Any:
    """Return the JSON in bytes. Raises InvalidDocument for text that is not JSON, NaN, repeated keys, deep nesting."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
        raise InvalidDocument("too many values", where=where, wanted=f"at most {MAX_VALUES}")
    try:
        with gc_paused():
            document = json.loads(
                raw.decode(), parse_constant=_reject_non_finite, object_pairs_hook=_reject_duplicate_keys
            )
        if _SURROGATE.search(raw):
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except InvalidDocument as error:
        raise error.at(where) from None
    except UnicodeDecodeError as error:
        raise InvalidDocument("not UTF-8 text", where=where, got=f"byte {error.start}") from None
    except UnicodeEncodeError:
        raise InvalidDocument("unpaired surrogate", where=where, wanted="text") from None
    except json.JSONDecodeError as error:
        place = f"{where}: line {error.lineno} column {error.colno}"
        raise InvalidDocument("not JSON", where=place, got=error.msg, wanted="a JSON document") from None
    except RecursionError:
        wanted = "a graph, mesh or plan document"
        raise InvalidDocument("nested too deeply", where=where, wanted=wanted) from None
    except ValueError:  # only int() is left to raise it
        raise InvalidDocument("number too long", where=where, wanted="at most 4300 digits") from None


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector: documents have no cycles, and scanning one takes five times its parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_bounded(stream: BinaryIO, where: str) -> bytes:
    raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise InvalidDocument("document too large", where=where, wanted=f"at most {MAX_BYTES >> 20} MiB")
    return raw


def _reject_non_finite(text: str) -> NoReturn:
    raise InvalidDocument("NaN or infinity not representable in JSON", got=text, wanted="a finite number")


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise InvalidDocument("key repeated in one object", got=twice, wanted="every key once")
    return entries
