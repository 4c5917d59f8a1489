"""`serve`, `worker` and `keys`: the service, more hands for it, and who may use it."""

from __future__ import annotations

import logging
import signal
import threading
from datetime import UTC, datetime
from types import FrameType
from typing import Annotated

import typer

from api.console import Json, print_json
from api.settings import Settings, database_url, is_loopback
from planner.errors import InvalidRequest

try:
    import uvicorn

    from api.http.app import application
    from api.keys import Key, Keys, Scope
    from api.service import Service
    from api.store import Store
except ModuleNotFoundError as error:
    raise InvalidRequest(f"no module {error.name}", where="serve", wanted="pip install shardplan[service]") from None

SECONDS_TO_END = 3

Database = Annotated[
    str | None, typer.Option(help="A file of SQLite (else one in the user's data directory), or postgresql://….")
]

keys = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


def serve(
    host: Annotated[str, typer.Option(help="Where to listen; beyond loopback only with keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 8000,
    database: Database = None,
    workers: Annotated[int, typer.Option(min=0, max=256, help="Plans solved here at once; 0: elsewhere.")] = 1,
) -> None:
    """Serve plans over HTTP, with one worker inside."""
    _log()
    service = Service(Settings(database_url(database), keys_required=not is_loopback(host), workers=workers))
    if service.settings.keys_required and not service.keys.any_valid:
        raise InvalidRequest("no keys", where=f"--host {host}", wanted="`shardplan keys add` first, or 127.0.0.1")
    config = uvicorn.Config(
        application(service),
        host,
        port,
        access_log=False,
        server_header=False,
        ws="none",
        log_config=None,
        timeout_graceful_shutdown=SECONDS_TO_END,
    )
    Server(config, service).run()


def worker(
    database: Database = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Plans solved at once.")] = 1,
) -> None:
    """Solve plans for the servers of a database, until told to end; what is in hand goes back in line."""
    _log()
    service = Service(Settings(database_url(database), workers=workers))
    told = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda _number, _frame: told.set())
    service.start()
    logging.getLogger("shardplan.worker").info("at work")
    told.wait()
    service.stop()


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)


class Server(uvicorn.Server):
    """One that tells its service of the signal first."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.leave()
        super().handle_exit(sig, frame)


@keys.command("add")
def add_key(
    tenant: Annotated[str, typer.Argument(help="Who it is for: keys of one tenant see the same plans.")],
    scope: Annotated[Scope, typer.Option(help="read; plan: and ask; admin: and see the metrics.")] = "plan",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Make a key and show it, this once."""
    made = _keys(database).add(tenant, scope)
    if as_json:
        print_json({"id": made.split("_")[1], "tenant": tenant, "scope": scope, "key": made})
    else:
        typer.echo(made)


@keys.command("list")
def list_keys(database: Database = None, as_json: Json = False) -> None:
    """Show all keys ever made, without their secrets."""
    listed = _keys(database).listed()
    if as_json:
        print_json({"keys": [_shown(key) for key in listed]})
    else:
        typer.echo("\n".join("  ".join(map(str, _shown(key).values())) for key in listed))


@keys.command("revoke")
def revoke_key(key: Annotated[str, typer.Argument(help="The key's id.")], database: Database = None) -> None:
    """Let a key open nothing any more."""
    _keys(database).revoke(key)


def _keys(database: str | None) -> Keys:
    return Keys(Store(database_url(database)))


def _shown(key: Key) -> dict[str, str]:
    made = datetime.fromtimestamp(key.created_at, UTC).isoformat(timespec="seconds")
    state = "valid" if key.revoked_at is None else "revoked"
    return {"id": key.id, "tenant": key.tenant, "scope": key.scope, "created_at": made, "state": state}
