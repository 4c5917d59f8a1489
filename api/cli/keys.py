"""`keys` and `admin`: who may use the service, and the care of its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import DatabaseOption, JsonOption, print_json, requires_service_extra
from api.settings import DAY_S, WORKER_TTL_S, database_url

with requires_service_extra():
    from api.jobs.api_keys import ApiKey, ApiKeys, Scope
    from api.jobs.database import Database
    from api.jobs.plan_repository import PlanRepository
    from api.jobs.retention import back_up, list_queue, purge

keys = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
admin = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@contextmanager
def open_database(database: str | None) -> Iterator[Database]:
    """The store, closed in the end."""
    store = Database(database_url(database))
    try:
        yield store
    finally:
        store.close()


@keys.command("add")
def add_key(
    tenant: Annotated[str, typer.Argument(help="Who it is for: keys of one tenant see the same plans.")],
    scope: Annotated[Scope, typer.Option(help="read; plan: and ask; admin: and see the metrics.")] = "plan",
    database: DatabaseOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Make a key and show it, this once."""
    with open_database(database) as store:
        made = ApiKeys(store).add(tenant, scope)
    if as_json:
        print_json({"id": made.split("_")[1], "tenant": tenant, "scope": scope, "key": made})
    else:
        typer.echo(made)


@keys.command("list")
def list_keys(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show all keys ever made, without their secrets."""
    with open_database(database) as store:
        listed = ApiKeys(store).list_all()
    if as_json:
        print_json({"keys": [_key_document(key) for key in listed]})
    else:
        typer.echo("\n".join("  ".join(map(str, _key_document(key).values())) for key in listed))


@keys.command("revoke")
def revoke_key(key: Annotated[str, typer.Argument(help="The key's id.")], database: DatabaseOption = None) -> None:
    """Let a key open nothing any more."""
    with open_database(database) as store:
        ApiKeys(store).revoke(key)


def _key_document(key: ApiKey) -> dict[str, str]:
    made = datetime.fromtimestamp(key.created_at, UTC).isoformat(timespec="seconds")
    state = "valid" if key.revoked_at is None else "revoked"
    return {"id": key.id, "tenant": key.tenant, "scope": key.scope, "created_at": made, "state": state}


@admin.command("queue")
def show_queue(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show how many workers were seen lately, plans by status, and those in line."""
    with open_database(database) as store:
        records, line = PlanRepository(store), list_queue(store)
        workers, counts = records.workers(WORKER_TTL_S), records.counts()
    if as_json:
        print_json({"workers": workers, "plans": counts, "line": line})
        return
    typer.echo(f"{workers} workers; plans: {', '.join(f'{n} {status}' for status, n in sorted(counts.items())) or 0}")
    for row in line:
        typer.echo(f"{row['id'][:12]}  {row['state']:7}  {row['waited_s']:8.1f} s  {row['tenant']}  {row['name']}")


@admin.command("forget")
def purge_plans(
    days: Annotated[float, typer.Option(min=0, help="Plans that ended longer ago.")],
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget ended plans and all that was heard of them."""
    with open_database(database) as store:
        count = purge(store, days * DAY_S)
    if as_json:
        print_json({"forgotten": count})
    else:
        typer.echo(f"{count} plans forgotten")


@admin.command("backup")
def back_up_database(
    file: Annotated[Path, typer.Argument(help="A new file.")], database: DatabaseOption = None
) -> None:
    """Copy a database of SQLite while it is in use."""
    with open_database(database) as store:
        back_up(store, file)
