"""A pytest plugin: with REQUIRE_ALL=1 a run starts only where everything that a test asks for is installed.

A test that is skipped or expected to fail then fails, with the reason. `tests/conftest.py` registers the plugin.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.clients import generate
from tests.testing.postgres_cluster import server_programs

VARIABLE = "REQUIRE_ALL"

PACKAGES = (
    *("torch", "transformers", "jax", "jaxlib", "onnx", "onnxscript", "mpi4py"),
    *("fastapi", "opentelemetry.sdk", "schemathesis", "httpx", "attrs", "dateutil"),
    *("playwright", "helm_python", "kubernetes_validate", "yaml", "ruamel.yaml", "cyclonedx"),
)
PROGRAMS = ("mlir-opt-19", "mlir-opt-22", "chromium", "hadolint", "check-jsonschema", "openssl", "mpiexec", "git")


def is_required() -> bool:
    return os.environ.get(VARIABLE, "") not in ("", "0")


def missing() -> list[str]:
    """Return what is not installed, each with where it comes from."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    lacking = [f"package {name}" for name in PACKAGES if not has_package(name)]
    lacking += [f"program {name}" for name in PROGRAMS if shutil.which(name, path=path) is None]
    lacking += [] if server_programs() else ["programs initdb and pg_ctl (PostgreSQL)"]
    lacking += [] if generate.program() else [f"program {generate.PROGRAM} (make client)"]
    return lacking


def has_package(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def pytest_configure(config: pytest.Config) -> None:
    """Raise UsageError where something is missing."""
    if not hasattr(config, "workerinput") and (lacking := missing()):
        raise pytest.UsageError(f"{VARIABLE} is set, but not all is installed (.ci/run does): {', '.join(lacking)}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"
        report.outcome = "failed"
        vars(report).pop("wasxfail", None)  # pytest counts no failure that has it
        report.longrepr = f"{VARIABLE} is set, and this does not run to its end: {why}"
