"""Reading an IOPDDL problem from a JSON file, plain or gzip, with limits on its size: bad files end in one error."""

from __future__ import annotations

import gc
import gzip
import json
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from solvers.iopddl.form import build_problem
from solvers.model import InvalidProblem
from solvers.problem import Problem

# The contest's largest files inflate to about 100 million bytes with 6 million numbers.
MAX_BYTES = 1 << 29
MAX_VALUES = 1 << 25


def read_problem(path: Path) -> Problem:
    """Return the problem in a file. Raises InvalidProblem, with the path of what is wrong, and OSError."""
    return build_problem(read_document(path))


def read_document(path: Path) -> Any:
    """Parse the JSON in a file, of at most 512 MiB inflated and 2**25 values. Raises InvalidProblem and OSError."""
    where = str(path)
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            raw = cast(BinaryIO, stream).read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidProblem("contents", where, f"damaged gzip ({error})", "a whole file") from None
    if len(raw) > MAX_BYTES:
        raise InvalidProblem("size", where, f"more than {MAX_BYTES} bytes", f"at most {MAX_BYTES >> 20} MiB inflated")
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
        raise InvalidProblem("number of values", where, f"more than {MAX_VALUES}", f"at most {MAX_VALUES}")
    return _parse_json(raw, where)


def _parse_json(raw: bytes, where: str) -> Any:
    enabled = gc.isenabled()
    gc.disable()  # JSON holds no cycles; the collector's passes over the growing document would double the time
    try:
        return json.loads(raw.decode(), parse_constant=_reject_non_finite, object_pairs_hook=_reject_duplicate_keys)
    except UnicodeDecodeError as error:
        raise InvalidProblem("text", where, f"byte {error.start} is not UTF-8", "UTF-8 text") from None
    except json.JSONDecodeError as error:
        place = f"{where} line {error.lineno} column {error.colno}"
        raise InvalidProblem("JSON", place, error.msg, "a JSON document") from None
    except RecursionError:
        raise InvalidProblem("nesting", where, "too deep", "a problem in the IOPDDL format") from None
    except InvalidProblem:
        raise
    except ValueError:  # from int(): Python limits the length of decimal strings
        raise InvalidProblem("number", where, "one of more than 4300 digits", "64-bit integers") from None
    finally:
        if enabled:
            gc.enable()


def _reject_non_finite(name: str) -> NoReturn:
    raise InvalidProblem("number", "document", name, "integers")


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidProblem("key", "document", f"{twice!r} twice", "each key once")
    return members
