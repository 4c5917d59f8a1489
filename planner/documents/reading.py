"""JSON from a file or text, within limits: a hostile document ends in one clear error."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from planner.errors import InvalidDocument

MAX_BYTES = 16 << 20


def read_json(path: Path) -> Any:
    """The JSON in a file, gzip or plain, up to 16 MiB inflated. Raises InvalidDocument."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            raw = _bounded(cast(BinaryIO, stream), str(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidDocument("damaged gzip file", where=str(path), got=str(error)) from None
    except OSError as error:
        raise InvalidDocument("cannot be read", where=str(path), got=error.strerror or str(error)) from None
    return parse_json(raw, str(path))


def parse_json(raw: bytes, where: str) -> Any:
    """The JSON in bytes. Raises InvalidDocument for text that is not JSON, NaN, repeated keys, deep nesting."""
    try:
        return json.loads(raw, parse_constant=_not_a_number, object_pairs_hook=_object)
    except InvalidDocument as error:
        raise error.at(where) from None
    except UnicodeDecodeError as error:
        raise InvalidDocument("not UTF-8 text", where=where, got=f"byte {error.start}") from None
    except json.JSONDecodeError as error:
        place = f"{where}: line {error.lineno} column {error.colno}"
        raise InvalidDocument("not JSON", where=place, got=error.msg, wanted="a JSON document") from None
    except RecursionError:
        raise InvalidDocument("nested too deeply", where=where, wanted="a graph, mesh or plan document") from None


def _bounded(stream: BinaryIO, where: str) -> bytes:
    raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise InvalidDocument("document too large", where=where, wanted=f"at most {MAX_BYTES >> 20} MiB")
    return raw


def _not_a_number(text: str) -> NoReturn:
    raise InvalidDocument("not a JSON number", got=text, wanted="a finite number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidDocument("key repeated in one object", got=twice, wanted="every key once")
    return found
