"""Proofs of plans: they are checked without the solver, and no tampering makes them claim what is not true."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import Mesh, Request, pipeline
from planner.choose.hardware import load_profile
from planner.documents.canonical_json import digest_document
from planner.documents.plans import dump_plan
from planner.errors import InvalidRequest, ShardplanError
from planner.judge import dual_certificate
from planner.judge.dual_certificate import CertificateRefused, DualCertificate, compute_bound
from planner.planning.deadline import Deadline, ProgressReporter, TimeLimitReached
from planner.usecases import prove
from planner.usecases.prove import Proven, prove_plan, verify_plan
from solvers import IMPOSSIBLE, Node, Problem, compute_exact_dual
from tests.testing.command_line import ROOT, shardplan
from tests.testing.graphs import small_transformer
from tests.testing.random_problems import tiny, with_best
from tests.testing.seeds import at_least, seeds
from tests.testing.small_documents import GRAPH, Document, changed, written

TAMPERED = seeds(500)
CHECKER = ROOT / "planner/judge/dual_certificate.py"
# What a tampered number, text or list becomes.
NUMBERS: list[Callable[[int], int]] = [
    lambda n: n + 1,
    lambda n: n - 1,
    lambda n: 2 * n,
    lambda n: -n,
    lambda n: n + 10**6,
    lambda _: 1 << 61,
]
OTHERS: list[Any] = [None, "x", [], {}, 0.5]


@cache
def proven(limit: int | None = None, objective: Any = "time") -> tuple[Document, Document, Proven]:
    """Return the document of a plan, its proof and what that proves."""
    mesh, request = Mesh.parse("2x2"), Request(limit, 0.2 if limit else 1e-6, deterministic=True, objective=objective)
    plan = pipeline.plan(small_transformer(mesh, d=64, ff=256), mesh, load_profile("h100-sxm"), request=request)
    assert plan.choice is not None
    raw = json.loads(json.dumps(dump_plan(plan)))
    proof = json.loads(json.dumps(prove_plan(raw, plan.choice)))
    return raw, proof, verify_plan(raw, proof)


def binding_limit() -> int:
    return int(proven()[0]["memory"]["peak_bytes"] * 0.9)


def tamper(document: Any, rng: random.Random) -> None:
    """Change one random part of a document."""
    key = rng.choice(list(document) if isinstance(document, dict) else range(len(document)))
    part = document[key]
    if isinstance(part, dict | list) and part and rng.random() < 0.95:
        tamper(part, rng)
    elif isinstance(part, int) and rng.random() < 0.8:
        document[key] = rng.choice(NUMBERS)(part)
    elif rng.random() < 0.2:
        del document[key]
    else:
        document[key] = rng.choice(OTHERS)


def sign(plan: Document, proof: Document) -> None:
    """Renew the digests of a tampered plan, and make the proof one of it."""
    plan["graph"]["digest"] = digest_document(plan["graph"]["document"])
    parts = {key: plan[key] for key in ("mesh", "hardware", "request")}
    plan["id"] = digest_document({"graph": plan["graph"]["digest"], **parts, "versions": plan["solver"]["versions"]})
    plan["digest"] = digest_document({key: value for key, value in plan.items() if key != "digest"})
    proof["plan_digest"] = plan["digest"]


def test_a_proof_shows_the_plan_to_be_the_best() -> None:
    raw, _, shown = proven()
    assert shown.step_ps == shown.bound_ps == round(raw["cost"]["step_s"] * 1e12)


def test_a_proof_holds_under_a_memory_limit_that_binds() -> None:
    _, proof, shown = proven(binding_limit())
    assert proof["prices"]
    assert proven()[2].bound_ps < shown.bound_ps <= shown.step_ps


@pytest.mark.parametrize("binds", [False, True])
def test_a_tampered_proof_is_refused_or_still_true(binds: bool) -> None:
    raw, proof, shown = proven(binding_limit() if binds else None)
    places = []
    for seed in TAMPERED:
        other = copy.deepcopy(proof)
        tamper(other, random.Random(seed))
        try:
            again = verify_plan(raw, other)
        except ShardplanError as error:
            places.append(str(error).partition(":")[0])
        else:
            assert (again.step_ps, again.bound_ps <= shown.step_ps) == (shown.step_ps, True), seed
    assert set(places) == {"proof"}
    assert len(places) > at_least(1 / 2, len(TAMPERED))


def test_a_tampered_plan_is_refused_or_still_true() -> None:
    raw, proof, shown = proven(binding_limit())
    refused = 0
    for seed in TAMPERED:
        plan, other = copy.deepcopy(raw), copy.deepcopy(proof)
        tamper(plan, random.Random(seed))
        try:
            if seed % 4:
                sign(plan, other)
        except (KeyError, TypeError):
            refused += 1  # the part that is signed is not there
            continue
        try:
            again = verify_plan(plan, other)
        except ShardplanError:
            refused += 1
        else:
            assert again == shown, seed
    assert refused > at_least(1 / 2, len(TAMPERED))


# What is changed in the proof, and words of the refusal.
REFUSED: list[tuple[str, Any, str]] = [
    ("plan_digest", "0" * 64, "not the one of this plan"),
    ("problem_digest", "0" * 64, "not the one of this plan"),
    ("step_ps", 1, "not the one of this plan"),
    ("solver_bound_ps", 1, "not the one of this plan"),
    ("bound_ps", 10**15, "the numbers prove less than is claimed"),
    ("scale", 0, "scale"),
    ("shift", 61, "shift"),
    ("potentials", [1, 2], "potentials: got 2, wanted"),
    ("potentials.0", 1 << 62, "too large to be added"),
    ("potentials.0", 0.5, "potentials"),
    ("prices", [{"time_step": 10**9, "price": 1}], "prices: got time step"),
    ("prices", [{"time_step": 0, "price": 1}] * 2, "two prices"),
    ("prices", [{"time_step": 0, "price": -1}], "price"),
]


@pytest.mark.parametrize(("path", "value", "words"), REFUSED)
def test_a_refusal_says_what_is_wrong(path: str, value: Any, words: str) -> None:
    raw, proof, _ = proven()
    with pytest.raises(ShardplanError, match=words):
        verify_plan(raw, changed(proof, path, value))


def test_a_proof_is_of_the_objective_time() -> None:
    with pytest.raises(InvalidRequest, match="--objective time"):
        proven(objective="memory")


def test_a_bound_is_never_above_the_optimum_whatever_the_numbers() -> None:
    tight = 0
    numbers = seeds(600)
    for seed in numbers:
        problem, best = with_best(tiny, seed)
        if best is None:
            continue
        dual = compute_exact_dual(problem, best[0], seconds=0.1)
        certificate = DualCertificate(dual.scale, dual.shift, dual.prices, dual.potentials)
        tight += compute_bound(problem.arrays, problem.limit, certificate) == best[1].cost
        for bad in [certificate, *_disturb(problem, certificate, np.random.default_rng(seed))]:
            assert compute_bound(problem.arrays, problem.limit, bad) <= best[1].cost, seed
    assert tight > at_least(1 / 5, len(numbers))


def _disturb(problem: Problem, certificate: DualCertificate, rng: np.random.Generator) -> list[DualCertificate]:
    """Return certificates with other potentials and prices."""
    potentials = certificate.potentials
    size, steps = int(np.abs(potentials).max(initial=1)), problem.arrays.time_steps
    moved = potentials + rng.integers(-size // 8 - 1, size // 8 + 2, potentials.size)
    prices = {int(t): int(rng.integers(0, 1000)) for t in range(steps)} if problem.limit is not None else {}
    return [
        DualCertificate(certificate.scale, certificate.shift, certificate.prices, moved),
        DualCertificate(certificate.scale, 5, prices, potentials),
    ]


def test_a_proof_that_is_stopped_at_once_is_a_proof() -> None:
    for seed in seeds(60):
        problem, best = with_best(tiny, seed)
        if best is None:
            continue
        dual = compute_exact_dual(problem, best[0], seconds=0.1, stopped=lambda: True)
        certificate = DualCertificate(dual.scale, dual.shift, dual.prices, dual.potentials)
        assert compute_bound(problem.arrays, problem.limit, certificate) <= best[1].cost, seed


def test_the_time_limit_ends_the_check_of_a_proof_also_while_its_bound_is_added_up() -> None:
    raw, proof, _ = proven()
    with pytest.raises(TimeLimitReached):
        verify_plan(raw, proof, report=ProgressReporter(Deadline(0.0), None))
    problem, _ = with_best(tiny, next(seed for seed in range(99) if tiny(seed).edges))
    count = int((problem.arrays.height + problem.arrays.width).sum())
    zero = DualCertificate(1, 0, {}, np.zeros(count, np.int64))
    with pytest.raises(TimeLimitReached):
        compute_bound(problem.arrays, problem.limit, zero, poll=Deadline(0.0).check)


def test_a_plan_whose_proof_would_be_too_large_is_written_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "MAX_POTENTIALS", 10)
    graph, plan, proof = written(tmp_path / "graph.json", GRAPH), tmp_path / "plan.json", tmp_path / "proof.json"
    told = shardplan("plan", graph, "--mesh", "2x2", "-o", plan, "--proof", proof)
    assert (told.code, plan.exists(), proof.exists()) == (0, True, False)
    assert "no proof is written: numbers of a proof" in told.err


def test_numbers_that_could_overflow_are_refused() -> None:
    problem, _ = with_best(tiny, next(seed for seed in range(99) if tiny(seed).edges))
    count = int((problem.arrays.height + problem.arrays.width).sum())
    huge = DualCertificate(1, 0, {}, np.full(count, -(1 << 63), np.int64))
    with pytest.raises(CertificateRefused, match="too large"):
        compute_bound(problem.arrays, problem.limit, huge)
    # Nothing is used, so that no product is large, but the prices would wrap around and turn the limit's term.
    unused = Problem([Node("n", np.array([3]), np.array([0]), (0, 3))], [], 7)
    prices = DualCertificate(1, 0, dict.fromkeys(range(3), (1 << 62) - 1), np.zeros(0, np.int64))
    with pytest.raises(CertificateRefused, match="too large"):
        compute_bound(unused.arrays, unused.limit, prices)


def test_the_checker_needs_neither_the_solver_nor_numba() -> None:
    assert dual_certificate.FORBIDDEN == IMPOSSIBLE
    assert len(CHECKER.read_text().splitlines()) <= 400
    alone = (
        f"import runpy, sys; runpy.run_path({str(CHECKER)!r}, run_name='checker');"
        "assert not {'numba', 'ortools', 'solvers', 'planner'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", alone], check=True, cwd=ROOT.parent)


def test_a_plan_is_verified_without_loading_numba(tmp_path: Path) -> None:
    raw, proof, shown = proven()
    plan, file = written(tmp_path / "plan.json", raw), written(tmp_path / "proof.json", proof)
    script = (
        "import json, sys; from planner.usecases.prove import verify_plan;"
        f"shown = verify_plan(json.load(open({str(plan)!r})), json.load(open({str(file)!r})));"
        "assert not {'numba', 'ortools', 'solvers.driver'} & set(sys.modules); print(shown.bound_ps)"
    )
    told = subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True, text=True)
    assert int(told.stdout) == shown.bound_ps


def test_the_command_line_writes_and_verifies_a_proof(tmp_path: Path) -> None:
    graph, plan, proof = written(tmp_path / "graph.json", GRAPH), tmp_path / "plan.json", tmp_path / "proof.json.gz"
    assert shardplan("plan", graph, "--mesh", "2x2", "-o", plan, "--proof", proof).code == 0
    refused = shardplan("plan", graph, "--mesh", "2x2", "--objective", "bytes", "--proof", proof)
    assert "a proof is of the step's time" in refused.err
    shown = shardplan("verify", plan, proof, "--json")
    assert (shown.code, set(shown.json)) == (0, {"verified", "reason", "step_ps", "bound_ps", "gap"})
    assert (shown.json["verified"], shown.json["reason"]) == (True, None)
    assert "no plan's is below" in shardplan("verify", plan, proof).out
    other = tmp_path / "other.json"
    assert shardplan("plan", graph, "--mesh", "4", "-o", other).code == 0
    told = shardplan("verify", other, proof, "--json")
    assert (told.code, told.json["verified"]) == (1, False)
    assert "plan_digest: not the one of this plan" in told.json["reason"]
    assert shardplan("check", plan, "--base", plan, "--proof", proof).code == 0
    for refused in (shardplan("verify", other, proof), shardplan("check", other, "--base", other, "--proof", proof)):
        assert refused.code == 1
        assert "plan_digest: not the one of this plan" in refused.err
