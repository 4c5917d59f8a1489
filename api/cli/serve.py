"""The service, with its workers inside."""

from __future__ import annotations

import logging
from contextlib import closing
from types import FrameType
from typing import Annotated

import typer

from api.cli.options import DatabaseOption, requires_service_extra
from api.jobs.worker_process import WorkerProcesses
from api.settings import Limits, Settings, database_url, is_loopback
from api.tracing import start_export
from planner.errors import InvalidRequest

with requires_service_extra():
    import uvicorn

    from api.http.app import create_app
    from api.service import Service

SHUTDOWN_S = 3


def serve(
    host: Annotated[str, typer.Option(help="Where to listen; beyond loopback only with keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 8000,
    database: DatabaseOption = None,
    *,
    workers: Annotated[int, typer.Option(min=0, max=256, help="Plans solved here at once; 0: elsewhere.")] = 1,
    max_queued: Annotated[int, typer.Option(min=1, help="Plans of a tenant in the queue.")] = Limits().max_queued,
    rate_limit: Annotated[float, typer.Option(min=1, help="Requests of a key a second.")] = Limits().requests_per_s,
    retention_days: Annotated[float | None, typer.Option(min=0, help="Forget plans that ended longer ago.")] = None,
    webhooks: Annotated[
        bool, typer.Option("--webhooks", help="Call public https addresses that callers name.")
    ] = False,
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
        if service.settings.keys_required and not service.keys.any_valid:
            raise InvalidRequest(
                "no keys", where=f"--host {host}", wanted="`shardplan keys create` first, or 127.0.0.1"
            )
        config = uvicorn.Config(
            create_app(service),
            host,
            port,
            access_log=False,
            server_header=False,
            ws="none",
            log_config=None,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        UvicornServer(config, service).run()


def configure_logging() -> None:
    """Lines to the terminal, spans to whoever collects them."""
    start_export()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)


class UvicornServer(uvicorn.Server):
    """One that tells its service of the signal first."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.begin_shutdown()
        super().handle_exit(sig, frame)
