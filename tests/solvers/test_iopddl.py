"""The IOPDDL format: read exactly, evaluated twice, and refused with the path of the fault."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solvers import IMPOSSIBLE, InvalidProblem, evaluate
from solvers.iopddl import build_problem, read_document, read_problem
from tests.testing.iopddl_evaluation import evaluate_document
from tests.testing.random_problems import public_document
from tests.testing.seeds import seeds

INFINITE = 10**18
GOOD: dict[str, Any] = {
    "problem": {
        "name": "two nodes",
        "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [3, 4, 5]], "usages": [[1, 2], [3, 0, 5]]},
        "edges": {"nodes": [[0, 1]], "costs": [[0, 1, 2, 3, INFINITE, 5]]},
        "usage_limit": 6,
    }
}

# Where in the document, what stands there instead, and what the message names.
WRONG: list[tuple[str, Any, str]] = [
    ("nodes", 5, "nodes: got 5"),
    ("nodes.costs", None, "nodes.costs: got None"),
    ("nodes.costs.0", 7, r"nodes.costs\[0\]: got 7"),
    ("nodes.costs.0", [], r"nodes.costs\[0\]: got 0"),
    ("nodes.costs.1.2", -1, r"nodes.costs\[1\]\[2\]: got -1"),
    ("nodes.costs.1.2", 1.5, r"nodes.costs\[1\]\[2\]: got 1.5"),
    ("nodes.costs.1.2", True, r"nodes.costs\[1\]\[2\]: got True"),
    ("nodes.costs.1.2", "9", r"nodes.costs\[1\]\[2\]: got '9'"),
    ("nodes.costs.1.2", [1], r"nodes.costs\[1\]\[2\]: got \[1\]"),
    ("nodes.costs.1.2", 1 << 63, r"nodes.costs\[1\]\[2\]: got 9223372036854775808"),
    ("nodes.costs.1.2", IMPOSSIBLE, r"nodes.costs\[1\]\[2\]: got 10000000000000000"),
    ("nodes.usages.0", [1, 2, 3], r"nodes.usages\[0\]: got 3, wanted 2"),
    ("nodes.usages.0.1", -4, r"nodes.usages\[0\]\[1\]: got -4"),
    ("nodes.usages", [[1, 2]], "nodes.usages: got 1, wanted 2"),
    ("nodes.intervals.1", [1], r"nodes.intervals\[1\]: got 1, wanted 2"),
    ("nodes.intervals.1", [3, 1], r"nodes.intervals\[1\]\[1\]: got 1"),
    ("nodes.intervals.1.0", -1, r"nodes.intervals\[1\]\[0\]: got -1"),
    ("nodes.intervals.1.1", 1 << 40, r"nodes.intervals\[1\]\[1\]: got 1099511627776"),
    ("edges.nodes.0", [0], r"edges.nodes\[0\]: got 1, wanted 2"),
    ("edges.nodes.0.1", 2, r"edges.nodes\[0\]\[1\]: got 2"),
    ("edges.nodes.0.1", 0, r"edges.nodes\[0\]\[1\]: got 0"),
    ("edges.costs.0", [0] * 5, r"edges.costs\[0\]: got 5, wanted 6"),
    ("edges.costs", [], "edges.costs: got 0, wanted 1"),
    ("usage_limit", -1, "usage_limit: got -1"),
    ("usage_limit", 1.0, "usage_limit: got 1.0"),
]
MISSING = ["nodes", "edges", "nodes.costs", "nodes.usages", "nodes.intervals", "edges.nodes", "edges.costs"]
DAMAGED: list[tuple[bytes, str]] = [
    (b"", "JSON"),
    (b"{", "JSON"),
    (b"[" * 100_000, "nesting"),
    (b'{"a": NaN}', "NaN"),
    (b'{"problem": 1, "problem": 2}', "'problem' twice"),
    (b'{"problem": ' + b"9" * 5000 + b"}", "4300 digits"),
    (b"\xff", "UTF-8"),
    (b"[]", "document: got"),
    (gzip.compress(json.dumps(GOOD).encode())[:-9], "gzip"),
]


def changed(path: str, value: Any) -> Any:
    document = copy.deepcopy(GOOD)
    *owners, last = path.split(".")
    owner = document["problem"]
    for key in owners:
        owner = owner[int(key) if key.isdigit() else key]
    owner[int(last) if last.isdigit() else last] = value
    return document


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_a_fault_is_named_by_its_path(path: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        build_problem(changed(path, value))


@pytest.mark.parametrize("path", MISSING)
def test_a_missing_key_is_named(path: str) -> None:
    document = copy.deepcopy(GOOD)
    *owners, last = path.split(".")
    owner = document["problem"]
    for key in owners:
        owner = owner[key]
    del owner[last]
    with pytest.raises(InvalidProblem, match=f"key of {path}"):
        build_problem(document)


@pytest.mark.parametrize(("raw", "message"), DAMAGED, ids=[message for _, message in DAMAGED])
def test_a_damaged_file_is_one_designed_error(raw: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_bytes(raw)
    with pytest.raises(InvalidProblem, match=message):
        read_problem(path)


def test_ten_million_nodes_are_too_many(tmp_path: Path) -> None:
    document = changed("nodes.intervals", [[0, 1]] * 10**7)
    with pytest.raises(InvalidProblem, match=r"nodes.intervals: got 10000000"):
        build_problem(document)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_file_reads_as_its_document(packed: bool, tmp_path: Path) -> None:
    raw = json.dumps(GOOD).encode()
    path = tmp_path / "problem.json"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    problem = read_problem(path)
    assert read_document(path) == GOOD
    arrays = problem.arrays
    assert arrays.pair_cost[arrays.pair_start[0] + arrays.kinds_of(0)].tolist() == [[0, 1, 2], [3, IMPOSSIBLE, 5]]
    assert arrays.span_usage[arrays.span_at[1] :][:3].tolist() == [3, 0, 5]
    assert (arrays.span_start[1], arrays.span_stop[1], problem.limit) == (1, 3, 6)


def test_an_infinite_cost_forbids_and_no_limit_is_none() -> None:
    problem = build_problem(GOOD)
    assert not evaluate(problem, (1, 1)).feasible
    assert evaluate(problem, (1, 0)).feasible
    document = changed("usage_limit", None)
    assert build_problem(document).limit is None


def test_the_problem_and_its_document_agree_on_every_choice() -> None:
    for seed in seeds(200):
        document = public_document(seed)
        problem = build_problem(document)
        rng = np.random.default_rng(seed)
        choice = rng.integers(problem.arrays.counts).tolist()
        assert evaluate(problem, choice) == evaluate_document(document, choice), seed
