"""`serve`: runs the HTTP service with its workers."""

from __future__ import annotations

import logging
from contextlib import closing
from types import FrameType
from typing import Annotated

import typer

from api.cli.options import DatabaseOption, requires_extra
from api.jobs.worker_process import WorkerProcesses
from api.settings import Limits, Settings, database_url, is_loopback
from api.tracing import start_export
from planner.errors import InvalidRequest

with requires_extra("service", "the service"):
    import uvicorn
    from fastapi import FastAPI

    from api.http.app import create_app
    from api.http.connection_limits import LimitedHttpProtocol, raise_open_files
    from api.service import Service

SHUTDOWN_S = 3


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback, API keys are required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0: any free one.")] = 8000,
    database: DatabaseOption = None,
    *,
    workers: Annotated[
        int, typer.Option(min=0, max=256, help="Plans solved at once by this process; 0: by `worker` only.")
    ] = 1,
    max_queued: Annotated[int, typer.Option(min=1, help="Queued plans per tenant.")] = Limits().max_queued,
    rate_limit: Annotated[float, typer.Option(min=1, help="Requests per second and key.")] = Limits().requests_per_s,
    retention_days: Annotated[float | None, typer.Option(min=0, help="Delete plans that ended longer ago.")] = None,
    webhooks: Annotated[bool, typer.Option("--webhooks", help="Allow webhooks to public addresses.")] = False,
) -> None:
    """Serve plans over HTTP, with one worker inside."""
    configure_logging()
    settings = Settings(
        database_url(database),
        keys_required=not is_loopback(host),
        workers=workers,
        keep_days=retention_days,
        webhooks=webhooks,
        limits=Limits(max_queued=max_queued, requests_per_s=rate_limit, burst=int(2 * rate_limit)),
    )
    with closing(WorkerProcesses()) as children:
        service = Service(settings, children)
        _require_key(service, host)
        run_app(create_app(service), service, host=host, port=port)


def run_app(app: FastAPI, service: Service, *, host: str, port: int) -> None:
    """Serve an application of a service until a signal comes."""
    config = uvicorn.Config(
        app,
        host,
        port,
        access_log=False,
        server_header=False,
        ws="none",
        http=LimitedHttpProtocol,
        log_config=None,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    raise_open_files()
    UvicornServer(config, service).run()


def _require_key(service: Service, host: str) -> None:
    if service.settings.keys_required and not service.keys.any_valid:
        raise InvalidRequest("no keys", where=f"--host {host}", wanted="`shardplan keys create` first, or 127.0.0.1")


def configure_logging() -> None:
    """Log to the terminal, and export spans where the environment names a collector."""
    start_export()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)


class UvicornServer(uvicorn.Server):
    """A server that tells its service about a signal before it handles it."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.begin_shutdown()
        super().handle_exit(sig, frame)
