"""Malicious files: each ends in one message, within two CPU seconds and 500 MB, and writes nothing."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testing.command_line import child, shardplan
from tests.testing.small_documents import GRAPH, LEFT_OUT, changed, typed, written

CPU_SECONDS = 2.0
SECONDS_OF_A_BUSY_MACHINE = 2.0
PEAK_BYTES = 500_000_000
MB = 1 << 20
EMPTY = json.dumps(GRAPH | {"nodes": []})


def bomb() -> bytes:
    """About 1 MB that inflates to 1 GB."""
    piece = gzip.compress(b" " * (64 * MB), 9)
    return piece * 16


def nodes(text: str, size: int) -> str:
    return EMPTY.replace('"nodes": []', f'"nodes": [{",".join([text] * (size // (len(text) + 1)))}]')


def chain(length: int, first: str) -> str:
    """A graph as long as it may be, with its only fault in a node."""
    made = [
        {"id": f"n{k}", "op": "relu", "inputs": [f"n{k - 1}" if k else first], "outputs": [typed(8, 16)]}
        for k in range(length)
    ]
    return json.dumps(GRAPH | {"nodes": made, "outputs": [f"n{length - 1}"]})


FILES: list[tuple[str, Callable[[], str | bytes], str]] = [
    ("truncated gzip", lambda: gzip.compress(random.Random(0).randbytes(MB))[: MB // 2], "damaged gzip file"),
    ("not gzip after its first bytes", lambda: b"\x1f\x8b" + b"no" * 99, "damaged gzip file"),
    ("gzip that inflates to 1 GB", bomb, "document too large"),
    ("100,000 open brackets", lambda: "[" * 100_000, "nested too deeply"),
    ("100,000 levels", lambda: "[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ("100,000 levels of objects", lambda: '{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
    ("100 MB of junk", lambda: random.Random(0).randbytes(100 * MB), "document too large"),
    ("100 MB of JSON", lambda: "[" + "1," * (50 * MB) + "1]", "document too large"),
    ("15 MB of lists", lambda: "[" + "[]," * (5 * MB) + "[]]", "too many values"),
    ("15 MB of keys", lambda: "{" + ",".join(f'"{k:07}":0' for k in range(15 * MB // 12)) + "}", "too many values"),
    ("15 MB of empty nodes", lambda: nodes("{}", 15 * MB), "too many values"),
    ("15 MB of text", lambda: '"' + "x" * (15 * MB) + '"', "wanted an object"),
    ("a million empty nodes", lambda: nodes("{}", MB), "nodes[0].id: missing key"),
    ("500,000 unknown keys", lambda: "{" + ",".join(f'"{k}":0' for k in range(500_000)) + "}", "too many faults"),
    ("a million lists in an attribute",
     lambda: json.dumps(changed(GRAPH, "nodes.1.attrs", {"a": 777})).replace("777", "[" + "[]," * 500_000 + "[]]"),
     "unknown attribute"),
    ("too many nodes", lambda: chain(40_000, "x"), "at most 30000"),
    ("a long chain that begins with nothing", lambda: chain(20_000, "nowhere"), "got nowhere"),
]  # fmt: skip


FIRST = {words: name for name, _, words in reversed(FILES)}
TRIED = [
    pytest.param(make, words, id=name, marks=() if FIRST[words] == name else pytest.mark.slow)
    for name, make, words in FILES
]
"""Of those that are refused in the same words, the first is in the quick run."""


@pytest.mark.parametrize(("make", "words"), TRIED)
def test_a_hostile_file_is_refused_within_time_and_memory(
    tmp_path: Path, make: Callable[[], str | bytes], words: str
) -> None:
    graph, output = written(tmp_path / "graph.json", make()), written(tmp_path / "plan.json", "kept")
    answer = child("plan", graph, "--mesh", "2x4", "-o", output)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"shardplan: {graph}: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert answer.cpu_s < CPU_SECONDS + SECONDS_OF_A_BUSY_MACHINE
    assert answer.peak_bytes < PEAK_BYTES
    assert output.read_text() == "kept"
    assert sorted(tmp_path.iterdir()) == [graph, output]


PLACES = [
    (["plan", "missing.json", "--mesh", "2"], "missing.json: cannot be read (got No such file or directory)"),
    (["plan", ".", "--mesh", "2"], ".: cannot be read (got Is a directory)"),
    (["show", "missing.json"], "missing.json: cannot be read"),
    (["validate", "."], ".: cannot be read (got Is a directory)"),
    (["plan", "graph.json", "--mesh", "missing.json"], "missing.json: cannot be read"),
    (["plan", "graph.json", "--mesh", "2", "--pin", "missing.json"], "missing.json: cannot be read"),
    (["plan", "graph.json", "--mesh", "2", "-o", "missing/plan.json"], "missing/plan.json: cannot be written"),
    (["plan", "graph.json", "--mesh", "2", "-o", "graph.json/plan.json"], "graph.json/plan.json: cannot be written"),
    (["plan", "graph.json", "--mesh", "2", "-o", "."], ".: cannot be written"),
    (["plan", "graph.json", "--mesh", "2", "-o", "n" * 300], "cannot be written (got File name too long"),
]


@pytest.mark.parametrize(("words", "message"), PLACES, ids=[" ".join(words)[:60] for words, _ in PLACES])
def test_a_file_that_cannot_be_read_or_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    graph = written(tmp_path / "graph.json", GRAPH)
    monkeypatch.chdir(tmp_path)
    answer = shardplan(*words)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("shardplan: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert list(tmp_path.iterdir()) == [graph]


def test_a_refused_graph_leaves_the_old_plan_as_it_was(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", changed(GRAPH, "outputs", LEFT_OUT))
    output = written(tmp_path / "plan.json", "kept")
    answer = child("plan", graph, "--mesh", "2x4", "-o", output, "--validate")
    assert answer.code == 1
    assert "Traceback" not in answer.err
    assert output.read_text() == "kept"
