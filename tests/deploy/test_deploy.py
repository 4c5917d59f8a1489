"""Deployment files are well-formed, and contain the files that they name and the versions that were tested."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.testing.external_tools import program

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILES = sorted(DEPLOY.glob("Dockerfile*[!e]"))


def locked(file: Path) -> set[str]:
    return set(re.findall(r"^([a-z0-9_.-]+==\S+) \\$", file.read_text(), re.MULTILINE))


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_a_dockerfile_passes_its_linter(file: Path) -> None:
    done = subprocess.run([program("hadolint"), str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_a_dockerfile_copies_files_that_exist_and_are_not_ignored(file: Path) -> None:
    ignored = file.with_name(f"{file.name}.dockerignore").read_text().split()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", file.read_text(), re.MULTILINE)
    sources = [name for line in copied for name in line.split()]
    assert sources
    assert all((ROOT / name).exists() for name in sources)
    assert {f"!{name}" for name in sources} <= set(ignored)


def test_compose_fits_its_schema() -> None:
    words = [program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_images_hold_the_versions_that_are_tested() -> None:
    images, tested = locked(DEPLOY / "requirements.lock"), locked(ROOT / "requirements.lock")
    assert {"sqlalchemy", "psycopg", "ortools"} <= {line.partition("==")[0] for line in images}
    assert images <= tested
    assert not {line for line in images if line.startswith(("pytest", "mypy", "ruff"))}
