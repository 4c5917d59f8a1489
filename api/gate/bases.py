"""Where the base of a check comes from: a file, a git revision, or a server.

A base is, in this order: a file that is there; 64 hexadecimal digits, a plan kept by the server; else a revision,
where it means the file checked as it stood then, or git's own `REVISION:PATH`.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from api.remote import NotKept, Remote
from planner.documents.plans import checked_plan
from planner.documents.reading import read_json, read_packed
from planner.documents.schemas import GraphDocument, PinsDocument, PlanDocument, checked
from planner.errors import InvalidDocument, InvalidRequest
from planner.gating import Given, Kept

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
        return _given(Remote(server).document(text), f"--base {text}")
    return _given(read_packed(_at_revision(text, new), f"--base {text}"), f"--base {text}")


def kept_by(server: str) -> Kept:
    """The plans that a server keeps: a base that is a graph needs no planning where it was planned there."""

    remote = Remote(server)

    def kept(plan: str) -> PlanDocument | None:
        try:
            return checked_plan(remote.document(plan), plan)
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
