"""What a framework needs of the service, in the standard library alone: ask, follow the incumbents, fetch the plan."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

SECONDS = 60.0
"""Without a word from the service, which speaks every 15."""


class Refused(Exception):
    """The service's problem (RFC 9457): what is wrong, and where in the body."""


@dataclass(frozen=True)
class Planner:
    """A service, and the key it knows us by, where it wants one."""

    url: str = "http://127.0.0.1:8000"
    key: str | None = None

    def plan(self, model: bytes, kind: str, **request: Any) -> dict[str, Any]:
        """The plan document of a model in the form that the content type `kind` names; the mesh and what else is asked
        go into the query. Raises Refused, and RuntimeError where the plan ended without a document."""
        with self._ask(f"/v1/plans?{urlencode(request, doseq=True)}", model, {"Content-Type": kind}) as answer:
            plan = json.load(answer)
        if plan["ended_at"] is None:
            last = self._wait(plan["links"]["events"])
            if last["status"] not in ("optimal", "feasible"):
                raise RuntimeError(f"{plan['id']}: {last['status']} {last.get('error', '')}")
        with self._ask(f"{plan['links']['self']}/document") as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def _wait(self, path: str) -> dict[str, Any]:
        """The last event; a stream that breaks off is taken up after the event seen last."""
        seen: dict[str, str] = {}
        while True:
            try:
                with self._ask(path, headers=seen) as answer:
                    for number, kind, told in events(answer):
                        seen = {"Last-Event-ID": number}
                        if kind == "incumbent" and told["incumbent_s"] is not None:  # none is known at first
                            print(f"step {told['incumbent_s'] * 1e6:.3g} us, gap {told['gap']:.2%}")
                        if kind == "done":
                            return told
            except (ConnectionError, TimeoutError):
                time.sleep(1.0)

    def _ask(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
        known = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        try:
            return urlopen(Request(self.url + path, body, {**known, **(headers or {})}), timeout=SECONDS)
        except HTTPError as error:
            problem = json.load(error)
            where = " ".join(fault["pointer"] for fault in problem.get("errors", ()))
            raise Refused(f"{problem['detail']} {where}".strip()) from None


def events(lines: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Server-sent events: number, kind, data."""
    told: dict[str, str] = {}
    for raw in lines:
        name, _, text = raw.decode().rstrip("\n").partition(": ")
        if name:
            told[name] = text
        elif "data" in told:
            yield told["id"], told["event"], json.loads(told["data"])
            told = {}


def shardings(document: dict[str, Any]) -> dict[str, list[list[str]]]:
    """By the name of each of the model's inputs and parameters: the mesh axes that split every dim."""
    inputs = document["graph"]["document"]["inputs"]
    return {each["name"]: document["shardings"][each["id"]]["split_axes"] for each in inputs}
