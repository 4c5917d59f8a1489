"""Finds the base of a check: a file, a git revision, or a plan on a server.

A base is, in this order: an existing file; 64 hexadecimal digits, the id of a plan on the server; else a git revision
of the checked file, or git's own `REVISION:PATH`.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from api.client import PlanUnavailable, ServiceClient
from planner.documents.json_reader import read_compressed, read_json
from planner.documents.pipeline_sections import AnyPlanDocument
from planner.documents.pipelines import FORMAT, parse_any_plan
from planner.documents.schemas import GraphDocument, PinsDocument, validate_document
from planner.errors import InvalidDocument, InvalidRequest
from planner.usecases.check import FindPlan, PlanOrGraph

FETCHED_REVISION = (
    "a revision that was fetched, in a git repository (git fetch origin main; actions/checkout: fetch-depth: 0)"
)


def with_pins(document: PlanOrGraph, pins: Path | None) -> PlanOrGraph:
    """Return a graph with the annotations of a pins file added; a plan has its own. Raises InvalidDocument."""
    if pins is None or not isinstance(document, GraphDocument):
        return document
    pinned = validate_document(PinsDocument, read_json(pins), str(pins)).annotations
    return document.model_copy(update={"annotations": [*document.annotations, *pinned]})


def read_given(path: Path) -> PlanOrGraph:
    """Return the plan or graph in a file. Raises InvalidDocument."""
    return _parse_document(read_json(path), str(path))


def read_base(text: str, new: Path, server: str | None) -> PlanOrGraph:
    """Return the plan or graph that `--base` names. Raises InvalidDocument, InvalidRequest."""
    if Path(text).is_file():
        return read_given(Path(text))
    if re.fullmatch("[0-9a-f]{64}", text):
        if server is None:
            raise InvalidRequest("a plan id without a server", where="--base", got=text, wanted="--server URL")
        return _parse_document(ServiceClient(server).document(text), f"--base {text}")
    return _parse_document(read_compressed(_read_at_revision(text, new), f"--base {text}"), f"--base {text}")


def fetch_plans_from(server: str) -> FindPlan:
    """Return a lookup of plans on a server, so that a base that was planned there is not planned again."""

    client = ServiceClient(server)

    def find_plan(plan: str) -> AnyPlanDocument | None:
        try:
            return parse_any_plan(client.document(plan), plan)
        except PlanUnavailable:
            return None

    return find_plan


def _parse_document(raw: Any, where: str) -> PlanOrGraph:
    form = raw.get("format") if isinstance(raw, dict) else None
    if form in ("shardplan.plan", FORMAT):
        return parse_any_plan(raw, where)
    if form == "shardplan.graph":
        return validate_document(GraphDocument, raw, where)
    got = form if isinstance(form, str) else None
    raise InvalidDocument(
        "neither plan nor graph", where=where, got=got, wanted="shardplan.plan, shardplan.pipeline or shardplan.graph"
    )


def _read_at_revision(text: str, new: Path) -> bytes:
    """Return the content of a file at a git revision, seen from the folder of the checked file."""
    revision, colon, path = text.partition(":")
    where = f"--base {text}"
    if not revision or revision.startswith("-"):
        raise InvalidRequest("no base", where="--base", got=text, wanted="a file, a plan id or a git revision")
    completed = _run_git(new.parent, "rev-parse", "--verify", f"{revision}^{{commit}}")
    if completed.returncode:
        raise InvalidRequest(
            "neither a file nor a revision", where=where, got=_first_error_line(completed), wanted=FETCHED_REVISION
        )
    completed = _run_git(new.parent, "cat-file", "blob", f"{revision}:{path if colon else f'./{new.name}'}")
    if completed.returncode:
        wanted = "a file that was there: the first check of a new model has no base yet"
        raise InvalidRequest("no such file at that revision", where=where, got=path or new.name, wanted=wanted)
    return completed.stdout


def _run_git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    try:
        return subprocess.run(["git", "-C", str(folder), *words], env=environment, capture_output=True, check=False)
    except FileNotFoundError:
        wanted = "git, or a base that is a file or a plan id"
        raise InvalidRequest("git is not installed", where="--base", wanted=wanted) from None


def _first_error_line(completed: subprocess.CompletedProcess[bytes]) -> str:
    return completed.stderr.decode(errors="replace").strip().partition("\n")[0]
