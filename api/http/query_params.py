"""Refuses unknown query parameters on every route, because a misspelt one would silently change nothing."""

from __future__ import annotations

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from api.http.problems import HttpProblem
from planner.documents.renamed_keys import find_new_key


async def reject_unknown_query_params(request: Request) -> None:
    """Raise HttpProblem 422 for a query parameter that the operation's description lacks."""
    if not request.query_params:
        return
    described = await run_in_threadpool(request.app.openapi)
    operation = described["paths"].get(request.scope["route"].path, {}).get(request.method.lower(), {})
    declared = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    for name in request.query_params:
        if name not in declared:
            if new_name := find_new_key([name]):
                raise HttpProblem(422, "invalid-parameter", f"{name} is now {new_name}", parameter=name)
            wanted = f"one of {', '.join(declared)}" if declared else "none"
            raise HttpProblem(
                422, "invalid-parameter", f"{name}: unknown query parameter", parameter=name, wanted=wanted
            )
