"""Canonical JSON against the examples of RFC 8785, and the ids made from it."""

from __future__ import annotations

import json
import math
import struct
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.documents.canonical_json import canonical_json, digest_document
from tests.testing.command_line import shardplan
from tests.testing.small_documents import GRAPH, changed, written

# RFC 8785, appendix B: the bits of a number and its text.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]

# Sections 3.2.2 and 3.2.3.
DOCUMENTS = [
    (
        r'{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],'
        r' "string": "\u20ac$\u000F\u000aA\u0027\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}',
        r'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}',
    ),
    (
        r'{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",'
        r' "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",'
        r' "\u00f6": "Latin Small Letter O With Diaeresis"}',
        '{"\\r":"Carriage Return","1":"One","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis",'
        '"\u20ac":"Euro Sign","\U0001f600":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}',
    ),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)

REQUESTS: list[tuple[str, list[str]]] = [
    ("another mesh", ["--mesh", "4x2"]),
    ("another name for an axis", ["--mesh", "dp=2,1=4"]),
    ("other hardware", ["--mesh", "2x4", "--hardware", "a100-sxm-cluster"]),
    ("a limit", ["--mesh", "2x4", "--memory-limit", "1GiB"]),
    ("a gap", ["--mesh", "2x4", "--gap", "0.01"]),
    ("a seed", ["--mesh", "2x4", "--seed", "1"]),
]


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_are_written_as_rfc_8785_writes_them(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number) == text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_have_no_canonical_text(number: float) -> None:
    with pytest.raises(ValueError):
        canonical_json(number)


@pytest.mark.parametrize(("text", "wanted"), DOCUMENTS, ids=["values", "order of keys"])
def test_documents_are_written_as_rfc_8785_writes_them(text: str, wanted: str) -> None:
    assert canonical_json(json.loads(text)) == wanted


@given(JSON)
def test_canonical_json_reads_back_as_what_has_the_same_text(value: Any) -> None:
    assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)


TRAPS = st.text('",:[]\\-.019eE+', max_size=12)
"""Strings that look like what stands around numbers."""
TRAPPED = st.recursive(
    TRAPS | st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRAPS, inner, max_size=4),
)


def plainly(value: Any) -> str:
    """Canonical JSON, written piece by piece."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{plainly(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(plainly, value)) + "]"
    return canonical_json(value) if isinstance(value, float) else json.dumps(value)


@given(TRAPPED)
def test_numbers_are_told_from_strings_that_hold_them(value: Any) -> None:
    assert canonical_json(value) == plainly(value)


def test_the_order_of_keys_changes_no_digest() -> None:
    entries = [("a", 1), ("b", [1.5, {"c": None}]), ("é", "ü")]
    assert len({digest_document(dict(order)) for order in permutations(entries)}) == 1


def plan_id(folder: Path, graph: object, *arguments: str) -> str:
    found: str = shardplan("plan", written(folder / "graph.json", graph), *arguments, "--json").json["id"]
    return found


def test_the_same_input_has_the_same_id(tmp_path: Path) -> None:
    first = plan_id(tmp_path, GRAPH, "--mesh", "2x4")
    assert first == plan_id(tmp_path, dict(reversed(GRAPH.items())), "--mesh", "0=2,1=4")
    assert first == plan_id(tmp_path, GRAPH, "--mesh", "2x4", "--hardware", "h100-sxm")
    assert len(first) == 64


@pytest.mark.parametrize("arguments", [request[1] for request in REQUESTS], ids=[request[0] for request in REQUESTS])
def test_another_request_has_another_id(tmp_path: Path, arguments: list[str]) -> None:
    assert plan_id(tmp_path, GRAPH, "--mesh", "2x4") != plan_id(tmp_path, GRAPH, *arguments)


def test_another_graph_has_another_id(tmp_path: Path) -> None:
    first = plan_id(tmp_path, GRAPH, "--mesh", "2x4")
    for path, value in (("name", "other"), ("nodes.1.op", "tanh"), ("inputs.1.kind", "buffer")):
        assert plan_id(tmp_path, changed(GRAPH, path, value), "--mesh", "2x4") != first
