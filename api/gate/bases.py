"""Where the base of a check comes from: a file, a git revision, or a server.

A base is, in this order: a file that is there; 64 hexadecimal digits, a plan kept by the server; else a revision,
where it means the file checked as it stood then, or git's own `REVISION:PATH`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from planner.documents.plans import checked_plan
from planner.documents.reading import MAX_BYTES, read_json, read_packed
from planner.documents.schemas import GraphDocument, PinsDocument, PlanDocument, checked
from planner.errors import InvalidDocument, InvalidRequest
from planner.gating import Given, Kept

KEY = "SHARDPLAN_KEY"
"""The environment variable that holds the server's key: on a command line others could read it."""
SECONDS = 30.0
FETCHED = "a revision that was fetched, in a git repository (git fetch origin main; actions/checkout: fetch-depth: 0)"


def pinned(given: Given, pins: Path | None) -> Given:
    """A graph with the annotations of a pins file; a plan has its own. Raises InvalidDocument."""
    if pins is None or isinstance(given, PlanDocument):
        return given
    more = checked(PinsDocument, read_json(pins), str(pins)).annotations
    return given.model_copy(update={"annotations": [*given.annotations, *more]})


def read_given(path: Path) -> Given:
    """The plan or graph in a file. Raises InvalidDocument."""
    return _given(read_json(path), str(path))


def read_base(text: str, new: Path, server: str | None) -> Given:
    """The plan or graph that a base names. Raises InvalidDocument, InvalidRequest."""
    if Path(text).is_file():
        return read_given(Path(text))
    if re.fullmatch("[0-9a-f]{64}", text):
        if server is None:
            raise InvalidRequest("a plan id without a server", where="--base", got=text, wanted="--server URL")
        return _given(_fetched(server, text), f"--base {text}")
    return _given(read_packed(_at_revision(text, new), f"--base {text}"), f"--base {text}")


def kept_by(server: str) -> Kept:
    """The plans that a server keeps: a base that is a graph needs no planning where it was planned there."""

    def kept(plan: str) -> PlanDocument | None:
        try:
            return checked_plan(_fetched(server, plan), plan)
        except NotKept:
            return None

    return kept


def _given(raw: Any, where: str) -> Given:
    form = raw.get("format") if isinstance(raw, dict) else None
    if form == "shardplan.plan":
        return checked_plan(raw, where)
    if form == "shardplan.graph":
        return checked(GraphDocument, raw, where)
    got = form if isinstance(form, str) else None
    raise InvalidDocument("neither plan nor graph", where=where, got=got, wanted="shardplan.plan or shardplan.graph")


def _at_revision(text: str, new: Path) -> bytes:
    """A file as it stood at a revision; seen from the folder of the file that is checked."""
    revision, colon, path = text.partition(":")
    where = f"--base {text}"
    if not revision or revision.startswith("-"):
        raise InvalidRequest("no base", where="--base", got=text, wanted="a file, a plan id or a git revision")
    done = _git(new.parent, "rev-parse", "--verify", f"{revision}^{{commit}}")
    if done.returncode:
        raise InvalidRequest("neither a file nor a revision", where=where, got=_said(done), wanted=FETCHED)
    done = _git(new.parent, "cat-file", "blob", f"{revision}:{path if colon else f'./{new.name}'}")
    if done.returncode:
        wanted = "a file that was there: the first check of a new model has no base yet"
        raise InvalidRequest("no such file at that revision", where=where, got=path or new.name, wanted=wanted)
    return done.stdout


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    try:
        return subprocess.run(["git", "-C", str(folder), *words], env=environment, capture_output=True, check=False)
    except FileNotFoundError:
        wanted = "git, or a base that is a file or a plan id"
        raise InvalidRequest("git is not installed", where="--base", wanted=wanted) from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode(errors="replace").strip().partition("\n")[0]


class _NoRedirects(HTTPRedirectHandler):
    """A key is for one host; where that one sends us on, it is not taken along."""

    def redirect_request(self, *_: Any) -> None:
        return None


class NotKept(InvalidRequest):
    """The server does not have the plan, or not yet."""


def _fetched(server: str, plan: str) -> Any:
    """The document of a plan. Raises NotKept, or InvalidRequest with what the server says."""
    url = f"{server.rstrip('/')}/v1/plans/{plan}/document"
    if not url.startswith(("http://", "https://")):
        raise InvalidRequest("--server", got=url, wanted="http://… or https://…")
    headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    try:
        with build_opener(_NoRedirects).open(Request(url, headers=headers), timeout=SECONDS) as answer:
            return read_packed(answer.read(MAX_BYTES + 1), url)
    except HTTPError as error:
        kind = NotKept if error.code in (404, 409) else InvalidRequest
        raise kind("the server refuses", where=url, got=_problem(error), wanted=_remedy(error.code)) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        if isinstance(error, InvalidDocument):
            raise
        why = str(getattr(error, "reason", error)) or type(error).__name__
        raise InvalidRequest(
            "the server cannot be reached", where=url, got=why, wanted="a running shardplan serve"
        ) from None


def _problem(error: HTTPError) -> str:
    """Its RFC 9457 problem in a line."""
    try:
        told = json.loads(error.read(MAX_BYTES))
        return f"{error.code} {told['title']}: {told['detail']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.code} {error.reason}"


def _remedy(code: int) -> str:
    if code in (401, 403):
        return f"a key that may read, in {KEY}"
    return "the id of a plan that it keeps" if code == 404 else "a plan that is done"
