"""A server that keeps plans, asked over HTTP. Its key is read from the environment: on a command line others could see
it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from planner.documents.json_reader import MAX_BYTES, read_compressed
from planner.errors import InvalidDocument, InvalidRequest

KEY_VARIABLE = "SHARDPLAN_KEY"
TIMEOUT_S = 30.0
KEY_REMEDY = f"a key that may do so, in {KEY_VARIABLE}"
REMEDIES = {401: KEY_REMEDY, 403: KEY_REMEDY, 404: "the id of a plan that it keeps", 409: "a plan that is done"}


class _NoRedirects(HTTPRedirectHandler):
    """A key is for one host; where that one sends us on, it is not taken along."""

    def redirect_request(self, *_: Any) -> None:
        return None


class PlanUnavailable(InvalidRequest):
    """The server does not have the plan, or not yet."""


class ServerBusy(InvalidRequest):
    """The server takes no more for now."""


ERROR_TYPES: dict[int, type[InvalidRequest]] = {
    404: PlanUnavailable,
    409: PlanUnavailable,
    429: ServerBusy,
    503: ServerBusy,
}


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """Raises InvalidRequest for what is no address."""

    url: str

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise InvalidRequest("--server", got=self.url, wanted="http://… or https://…")

    def document(self, plan: str) -> Any:
        """Of a plan, by its id; errors as of `asked`."""
        return self.request(f"/v1/plans/{plan}/document")

    def request(self, path: str, body: Any = None) -> Any:
        """What is answered to GET, or to POST of a body. Raises NotKept, Busy, or InvalidRequest with what the server
        says."""
        url = self.url.rstrip("/") + path
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "Content-Type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        request = Request(url, None if body is None else json.dumps(body).encode(), headers)
        try:
            with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S) as answer:
                return read_compressed(answer.read(MAX_BYTES + 1), url)
        except HTTPError as error:
            kind = ERROR_TYPES.get(error.code, InvalidRequest)
            wanted = REMEDIES.get(error.code)
            raise kind("the server refuses", where=url, got=_format_problem(error), wanted=wanted) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            if isinstance(error, InvalidDocument):
                raise
            why, wanted = str(getattr(error, "reason", error)) or type(error).__name__, "a running shardplan serve"
            raise InvalidRequest("the server cannot be reached", where=url, got=why, wanted=wanted) from None


def _format_problem(error: HTTPError) -> str:
    """Its RFC 9457 problem in a line."""
    try:
        told = json.loads(error.read(MAX_BYTES))
        return f"{error.code} {told['title']}: {told['detail']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.code} {error.reason}"
