"""`worker`: solves plans from the queue of a database."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import closing
from typing import Annotated

import typer

from api.cli.options import DatabaseOption, requires_extra
from api.cli.serve import configure_logging, run_app
from api.jobs.worker_process import WorkerProcesses
from api.settings import Settings, database_url

with requires_extra("service", "the service"):
    from api.http.app import create_worker_app
    from api.service import Service


def worker(
    database: DatabaseOption = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Plans solved at once.")] = 1,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Answer /healthz, /readyz and /metrics on this port; 0: any free one."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address of the port.")] = "127.0.0.1",
) -> None:
    """Solve plans from the queue of a database until a signal comes; unfinished plans go back to the queue."""
    configure_logging()
    with closing(WorkerProcesses()) as children:
        service = Service(Settings(database_url(database), workers=workers), children)
        if port is not None:
            run_app(create_worker_app(service), service, host=host, port=port)
            return
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: stopped.set())
        service.start()
        logging.getLogger("shardplan.worker").info("ready to solve")
        stopped.wait()
        service.stop()
