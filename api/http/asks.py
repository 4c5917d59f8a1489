"""From the body of a request to the question it asks: a graph document, or a model in another tool's form, which a
child process converts first."""

from __future__ import annotations

import hashlib
import threading
from typing import Annotated, Any

from pydantic import Field

from api.asking import PlanAsked, RequestAsked, asked_from, packed, packed_text, unpacked
from api.foreign import asked_of
from api.http.limits import JSON, Sent, check_size, parsed
from api.http.problems import Problem, of_child
from api.jobs import Question
from api.service import Service
from api.settings import Limits
from api.units import parse_sizes
from planner.documents.plans import identified
from planner.documents.reading import collector_paused
from planner.documents.schemas import checked
from planner.documents.strict import Id, Name


class Beside(RequestAsked, strict=False):
    """What JSON says in its body, and other content types leave to the query: mesh, hardware and request; the graph's
    name, and sizes of symbolic dims (dim=batch=8)."""

    mesh: Name | None = None
    hardware: Id | None = None
    name: Name = "model"
    dim: Annotated[list[str], Field(max_length=64)] = Field(default=[])


class Repeats:
    """The plans that bodies asked for, so that the same body is not read again; only the last are kept."""

    MOST = 4096

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[str, str] = {}

    def plan_of(self, digest: str) -> str | None:
        with self._lock:
            return self._plans.get(digest)

    def keep(self, digest: str, plan: str) -> None:
        with self._lock:
            self._plans.pop(digest, None)
            self._plans[digest] = plan
            if len(self._plans) > self.MOST:
                del self._plans[next(iter(self._plans))]


def question_of(service: Service, sent: Sent, beside: Beside) -> Question:
    """The question, checked as far as can be without solving. Raises Problem, ShardplanError."""
    if sent.kind == JSON:
        if said := sorted(beside.model_fields_set):
            raise _wrong(said[0], f"{said[0]} is said in the body where it is JSON")
        with collector_paused():
            return _question(parsed(sent.data, service.limits), packed_text(sent.data), service.limits)
    document = _converted(service, sent, beside)
    with collector_paused():
        return _question(document, packed(document), service.limits)


def _question(document: Any, ask: bytes, limits: Limits) -> Question:
    asked = checked(PlanAsked, document, "body")
    check_size(asked, limits)
    values = asked_from(asked)
    identity: str = identified(values.graph, values.model, values.request)["id"]
    return Question(identity, values.graph.name, ask)


def digest_of(sent: Sent, beside: Beside) -> str:
    """Of everything that was sent."""
    told = hashlib.sha256(f"{sent.kind}\n{beside.model_dump_json(exclude_unset=True)}\n".encode())
    told.update(sent.data)
    return told.hexdigest()


def _converted(service: Service, sent: Sent, beside: Beside) -> Any:
    if beside.mesh is None:
        raise _wrong("mesh", "the mesh is missing, such as ?mesh=dp=2,tp=4")
    ended = service.answer("conversion", asked_of(sent.kind, sent.data, beside.name, parse_sizes(beside.dim)))
    if ended.kind != "result":
        raise of_child(ended)
    request = beside.model_dump(include=set(RequestAsked.model_fields), exclude_unset=True)
    asked = {"graph": unpacked(ended.payload), "mesh": beside.mesh, "hardware": beside.hardware, "request": request}
    return {key: value for key, value in asked.items() if value is not None}


def _wrong(parameter: str, detail: str) -> Problem:
    return Problem(422, "invalid-parameter", detail, parameter=parameter)
