"""The application: routes, error handlers and middleware around a service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import Depends, FastAPI, Response
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware

from api.http import plan_intake, problems
from api.http.limits import BodyBudget, LargeBodyTurns, RateLimiter
from api.http.openapi import build_openapi
from api.http.query_params import reject_unknown_query_params
from api.http.routes import capacity, documents, events, models, plans, reports, system, tasks, webhooks
from api.http.security import RequestMiddleware
from api.service import Service
from planner.version import VERSION


def create_app(service: Service) -> FastAPI:
    """Return the HTTP application of a service. Its workers run as long as the application does."""

    app = FastAPI(
        title="shardplan",
        summary="How a model is sharded over a device mesh, with a proven bound.",
        version=VERSION,
        lifespan=_run_service,
        docs_url=None,  # its page loads scripts from other hosts
        redoc_url=None,
        openapi_url=None,  # routes/system.py serves it, with the headers of every answer
        dependencies=[Depends(reject_unknown_query_params)],
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # the function's name in generated clients
    )
    app.state.service = service
    app.state.recent_requests = plan_intake.RecentRequests()
    app.state.bodies = BodyBudget(service.limits.bodies_bytes)
    app.state.turns = LargeBodyTurns()
    app.state.rate_limiter = RateLimiter(service.limits.requests_per_s, service.limits.burst)
    for part in (plans, documents, reports, events, capacity, tasks, webhooks, models, system):
        app.include_router(part.router)
    problems.install_handlers(app)
    app.add_exception_handler(events.AllReceived, lambda _request, _error: Response(status_code=204))
    app.add_middleware(GZipMiddleware, minimum_size=1024)
    app.add_middleware(RequestMiddleware)
    app.openapi = partial(build_openapi, app)  # type: ignore[method-assign]
    return app


def create_worker_app(service: Service) -> FastAPI:
    """Return the probes and the metrics of a process that only solves: /healthz, /readyz and /metrics."""
    app = FastAPI(lifespan=_run_service, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.service = service
    app.state.rate_limiter = RateLimiter(service.limits.requests_per_s, service.limits.burst)
    problems.install_handlers(app)
    app.add_api_route("/healthz", system.get_health)
    app.add_api_route("/readyz", system.get_worker_readiness)
    app.add_api_route("/metrics", system.get_metrics, response_class=Response)
    return app


@asynccontextmanager
async def _run_service(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    await run_in_threadpool(service.start)
    yield
    await run_in_threadpool(service.stop)
