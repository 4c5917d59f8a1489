"""A client of a running service. Its API key is read from the environment, because other users of a machine can see
command lines.
"""

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
KEY_REMEDY = f"a key with the needed scope, in {KEY_VARIABLE}"
REMEDIES = {401: KEY_REMEDY, 403: KEY_REMEDY, 404: "the id of a plan that it keeps", 409: "a plan that is done"}
"""What the server would accept, by the status of its refusal."""


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects, so that the API key is never sent to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class PlanUnavailable(InvalidRequest):
    """The server does not have the plan, or the plan is not solved yet."""


class ServerBusy(InvalidRequest):
    """The server refuses further work for now."""


ERROR_TYPES: dict[int, type[InvalidRequest]] = {
    404: PlanUnavailable,
    409: PlanUnavailable,
    429: ServerBusy,
    503: ServerBusy,
}


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """A client of the service at one URL. Raises InvalidRequest for a URL that is not http or https."""

    url: str

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise InvalidRequest("--server", got=self.url, wanted="http://… or https://…")

    def document(self, plan: str) -> Any:
        """Return the document of a plan by its id. Raises the errors of `request`."""
        return self.request(f"/v1/plans/{plan}/document")

    def request(self, path: str, body: Any = None) -> Any:
        """Return the answer to a GET, or to a POST of `body`.

        Raises PlanUnavailable, ServerBusy, or InvalidRequest with the server's explanation.
        """
        url = self.url.rstrip("/") + path
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "Content-Type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        request = Request(url, None if body is None else json.dumps(body).encode(), headers)
        try:
            with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S) as answer:
                return read_compressed(answer.read(MAX_BYTES + 1), url)
        except HTTPError as error:
            error_type = ERROR_TYPES.get(error.code, InvalidRequest)
            remedy = REMEDIES.get(error.code)
            raise error_type("the server refuses", where=url, got=_format_problem(error), wanted=remedy) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            if isinstance(error, InvalidDocument):
                raise
            reason, remedy = str(getattr(error, "reason", error)) or type(error).__name__, "a running shardplan serve"
            raise InvalidRequest("the server cannot be reached", where=url, got=reason, wanted=remedy) from None


def _format_problem(error: HTTPError) -> str:
    """Return an RFC 9457 problem as one line."""
    try:
        problem = json.loads(error.read(MAX_BYTES))
        return f"{error.code} {problem['title']}: {problem['detail']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.code} {error.reason}"
