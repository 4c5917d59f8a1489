"""The application: routes, handlers and frame around a service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import Depends, FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware

from api.http import answers, asks, documents, events, house, models, plans, problems, reports, webhooks
from api.http.limits import Rates
from api.http.openapi import describe
from api.http.queries import no_others
from api.http.security import Frame
from api.service import Service
from planner.version import VERSION


def application(service: Service) -> FastAPI:
    """The service over HTTP; its worker runs as long as the application does."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await run_in_threadpool(service.stop)

    app = FastAPI(
        title="shardplan",
        summary="How a model is sharded over a device mesh, with a proven bound.",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # shown by the house, as everything is
        dependencies=[Depends(no_others)],
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # what a generated client calls it
    )
    app.state.service = service
    app.state.repeats = asks.Repeats()
    app.state.rates = Rates(service.limits.requests_per_s, service.limits.burst)
    for part in (plans, documents, reports, events, answers, webhooks, models, house):
        app.include_router(part.router)
    problems.install(app)
    app.add_middleware(GZipMiddleware, minimum_size=1024)
    app.add_middleware(Frame)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    return app
