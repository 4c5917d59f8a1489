"""Clients of the service: the generated one against a running service, and the examples for torch and JAX."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from examples.clients import generate
from tests.testing.command_line import ROOT
from tests.testing.service import Server, ended, start
from tests.testing.small_documents import GRAPH, changed

pytestmark = pytest.mark.service

ASK = {"graph": GRAPH, "mesh": "dp=2,tp=4"}
NEEDS = ["httpx", "attrs", "dateutil"]
EXAMPLES = [
    pytest.param("torch", "2.weight", marks=pytest.mark.frameworks("torch")),
    pytest.param("jax", "arg0", marks=pytest.mark.frameworks("jax")),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("service")
    found = start(f"sqlite:///{folder}/service.db", folder / "log")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated client, without a warning."""
    if generate.program() is None or not all(map(find_spec, NEEDS)):
        pytest.skip(f"{generate.PROGRAM} is not installed: make client")
    target = tmp_path_factory.mktemp("client") / "generated_client"
    generate.generate(target)
    return target


@pytest.fixture
def client(package: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(package.parent))
    module = importlib.import_module("generated_client")
    base = str(server.client.base_url)
    with module.AuthenticatedClient(base_url=base, token="any", raise_on_unexpected_status=True) as found:
        yield found


def call(name: str, **arguments: Any) -> Any:
    """The answer to an operation; `body` is of the class named first."""
    if "body" in arguments:
        model, document = arguments["body"]
        arguments["body"] = getattr(importlib.import_module("generated_client.models"), model).from_dict(document)
    return importlib.import_module(f"generated_client.api.{name}").sync(**arguments)


def test_the_generated_client_plans(client: Any, server: Server) -> None:
    plan = call("plans.create_plan", client=client, body=("PlanRequest", ASK)).id
    assert ended(server.client, plan)["status"] == "optimal"
    shown = call("plans.get_plan", plan=plan, client=client)
    assert (shown.status.value, shown.name, shown.gap <= 1e-3) == ("optimal", "small", True)
    document = call("plans.get_plan_document", plan=plan, client=client)
    assert document.id == plan
    assert document.to_dict() == server.client.get(f"/v1/plans/{plan}/document").json()
    assert [each.id for each in call("plans.list_plans", client=client).plans] == [plan]
    assert call("plans.cancel_plan", plan=plan, client=client).status.value == "optimal"
    verdict = call("tasks.validate_plan", client=client, body=("ValidationRequest", {"plan": plan}))
    assert verdict.verdict.value == "equal"
    assert call("system.get_limits", client=client)["nodes"] > 0


def test_the_generated_client_gives_problems(client: Any) -> None:
    wrong = changed(ASK, "graph.nodes.0.op", "no_such_op")
    problem = call("plans.create_plan", client=client, body=("PlanRequest", wrong))
    assert (problem.status, problem.errors[0].pointer) == (422, "#/graph/nodes/0")
    assert call("plans.get_plan", plan="0" * 64, client=client).status == 404


def test_the_generated_client_is_typed(package: Path, tmp_path: Path) -> None:
    """But for its frame, where the generator passes `__exit__` on as objects."""
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n[mypy-generated_client.client]\nignore_errors = true\n")
    words = [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini"), package.name]
    done = subprocess.run(words, cwd=package.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("framework", "weight"), EXAMPLES)
def test_an_example_prints_the_shardings_of_its_model(framework: str, weight: str, server: Server) -> None:
    words = [sys.executable, "-m", f"examples.clients.{framework}_client", str(server.client.base_url)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = [line for line in done.stdout.splitlines() if line.startswith(weight)]
    assert shown, done.stdout
    assert "dp" in done.stdout or "tp" in done.stdout
