"""Every result names its commit, and `benchmarks.stale` can tell what changed since then."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import mutant_sample
from benchmarks.measured import MEASURED, ROOT, changed_since, measured_commit
from benchmarks.record import RESULTS
from benchmarks.stale import report
from tests.testing.check_cases import IDENTITY

WRITES = re.compile(r"^from benchmarks\.record import .*\bwrite\b", re.MULTILINE)
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if WRITES.search(path.read_text()))
ON_A_GPU = {"gpu"}
"""Written by `make gpu`, where there is one."""


def test_every_benchmark_says_what_it_measures() -> None:
    assert {name.removesuffix("_deterministic") for name in MEASURED} == set(SCRIPTS)


@pytest.mark.parametrize("path", sorted({path for paths in MEASURED.values() for path in paths}))
def test_measured_files_exist(path: str) -> None:
    assert (ROOT / path).exists()


def test_faults_are_planted_into_code_that_exists_and_has_tests() -> None:
    places = [*mutant_sample.TESTS, *mutant_sample.LEFT_OUT]
    places += [f"tests/{folder}" for near in mutant_sample.TESTS.values() for folder in near]
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_every_equivalent_fault_is_a_fault_of_an_existing_line() -> None:
    said = json.loads((ROOT / "benchmarks" / "data" / "equivalent_mutants.json").read_text())
    for key in said:
        path, _, fault = key.partition(": ")
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        assert any(line.strip() and fault.startswith(f"{line.strip()}: ") for line in lines), key


def test_every_result_is_of_a_benchmark() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} - ON_A_GPU <= set(MEASURED)


@pytest.mark.parametrize("name", [name for name in MEASURED if (RESULTS / f"{name}.json").exists()])
def test_every_result_names_its_commit_and_day(name: str) -> None:
    result = json.loads((RESULTS / f"{name}.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", result["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"])
    assert {"cores", "python", "packages"} <= set(result["machine"])


def git(folder: Path, *words: str) -> str:
    words = ("git", "-C", str(folder), *IDENTITY, *words)
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with code that two benchmarks measure."""
    for folder in ("solvers", "api", "results"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "code.py").write_text("first\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def recorded(repository: Path, name: str, commit: str) -> None:
    (repository / "results" / f"{name}.json").write_text(json.dumps({"commit": commit, "date": "2026-01-01"}))


def test_a_result_is_out_of_date_where_the_measured_code_has_changed(repository: Path) -> None:
    commit = measured_commit(("solvers",), repository)
    assert commit == git(repository, "rev-parse", "--short", "HEAD")
    for name in ("solver", "service"):
        recorded(repository, name, commit)
    (repository / "solvers" / "code.py").write_text("second\n")
    assert measured_commit(("solvers",), repository) == f"{commit}-dirty"
    assert measured_commit(("api",), repository) == commit
    recorded(repository, "failover", f"{commit}-dirty")
    recorded(repository, "zoo", "abcdef0")
    assert [line.partition(" on ")[0].split() for line in report(repository / "results", repository)][:-1] == [
        ["old", "failover,", "measured", "at", f"{commit}-dirty"],
        ["old", "solver,", "measured", "at", commit],
        ["unknown", "zoo,", "measured", "at", "abcdef0"],
        ["current", "service,", "measured", "at", commit],
    ]
    assert changed_since(commit, MEASURED["solver"], repository) == ["solvers/code.py"]


def test_a_result_is_as_old_as_its_oldest_model(repository: Path) -> None:
    first = measured_commit(("solvers",), repository)
    (repository / "solvers" / "code.py").write_text("second\n")
    git(repository, "commit", "--quiet", "--all", "-m", "second")
    second = measured_commit(("solvers",), repository)
    for models, state in ([], "current"), ([{"commit": second}, {}], "current"), ([{"commit": first}, {}], "old"):
        result = {"commit": second, "date": "2026-01-01", "models": models}
        (repository / "results" / "solver.json").write_text(json.dumps(result))
        assert next(report(repository / "results", repository)).split()[0] == state


def test_a_clone_without_the_commit_says_so(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    commit = measured_commit(("solvers",), repository)
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "second")
    shallow = tmp_path_factory.mktemp("clone") / "shallow"
    git(repository, "clone", "--quiet", "--depth", "1", repository.as_uri(), str(shallow))
    (shallow / "results").mkdir(exist_ok=True)
    recorded(shallow, "solver", commit)
    first, count = report(shallow / "results", shallow)
    assert "this clone has no such commit (where it is shallow: git fetch --unshallow)" in first
    assert count.startswith("0 of 1 results")


def test_without_git_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert measured_commit(("solvers",), tmp_path) == "unknown"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert measured_commit(("solvers",), tmp_path) == "unknown"


@pytest.mark.frameworks("torch")
@pytest.mark.slow
def test_the_benchmark_for_a_gpu_runs_on_a_cpu_too_in_numpy_and_pytorch(tmp_path: Path) -> None:
    from benchmarks import gpu

    assert gpu.main(["--backend", "numpy", "--small", "-o", str(tmp_path / "gpu.json")]) == 0
    result = json.loads((tmp_path / "gpu.json").read_text())
    assert result["rows"]["run"] == result["rows"]["cases"] > 0
    assert result["plan"]["verdict"]["verdict"] == "equal"
    assert {"linear", "adam"} <= {row["name"] for row in result["torch"]["times"]["by_class"]}
    assert result["torch"]["held_bytes"] == pytest.approx(result["torch"]["predicted_peak_bytes"], rel=0.01)
