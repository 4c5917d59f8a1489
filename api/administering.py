"""`keys` and `admin`: who may use the service, and the care of its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from api.console import Database, Json, print_json, service_extra
from api.settings import DAY_S, UNSEEN_S, database_url

with service_extra():
    from api.keys import Key, Keys, Scope
    from api.records import Records
    from api.retention import back_up, forget, in_line
    from api.store import Store

keys = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
admin = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@contextmanager
def opened(database: str | None) -> Iterator[Store]:
    """The store, closed in the end."""
    store = Store(database_url(database))
    try:
        yield store
    finally:
        store.close()


@keys.command("add")
def add_key(
    tenant: Annotated[str, typer.Argument(help="Who it is for: keys of one tenant see the same plans.")],
    scope: Annotated[Scope, typer.Option(help="read; plan: and ask; admin: and see the metrics.")] = "plan",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Make a key and show it, this once."""
    with opened(database) as store:
        made = Keys(store).add(tenant, scope)
    if as_json:
        print_json({"id": made.split("_")[1], "tenant": tenant, "scope": scope, "key": made})
    else:
        typer.echo(made)


@keys.command("list")
def list_keys(database: Database = None, as_json: Json = False) -> None:
    """Show all keys ever made, without their secrets."""
    with opened(database) as store:
        listed = Keys(store).listed()
    if as_json:
        print_json({"keys": [_shown(key) for key in listed]})
    else:
        typer.echo("\n".join("  ".join(map(str, _shown(key).values())) for key in listed))


@keys.command("revoke")
def revoke_key(key: Annotated[str, typer.Argument(help="The key's id.")], database: Database = None) -> None:
    """Let a key open nothing any more."""
    with opened(database) as store:
        Keys(store).revoke(key)


def _shown(key: Key) -> dict[str, str]:
    made = datetime.fromtimestamp(key.created_at, UTC).isoformat(timespec="seconds")
    state = "valid" if key.revoked_at is None else "revoked"
    return {"id": key.id, "tenant": key.tenant, "scope": key.scope, "created_at": made, "state": state}


@admin.command("queue")
def show_queue(database: Database = None, as_json: Json = False) -> None:
    """Show how many workers were seen lately, plans by status, and those in line."""
    with opened(database) as store:
        records, line = Records(store), in_line(store)
        workers, counts = records.workers(UNSEEN_S), records.counts()
    if as_json:
        print_json({"workers": workers, "plans": counts, "line": line})
        return
    typer.echo(f"{workers} workers; plans: {', '.join(f'{n} {status}' for status, n in sorted(counts.items())) or 0}")
    for row in line:
        typer.echo(f"{row['id'][:12]}  {row['state']:7}  {row['waited_s']:8.1f} s  {row['tenant']}  {row['name']}")


@admin.command("forget")
def forget_plans(
    days: Annotated[float, typer.Option(min=0, help="Plans that ended longer ago.")],
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Forget ended plans and all that was heard of them."""
    with opened(database) as store:
        count = forget(store, days * DAY_S)
    if as_json:
        print_json({"forgotten": count})
    else:
        typer.echo(f"{count} plans forgotten")


@admin.command("backup")
def back_up_database(file: Annotated[Path, typer.Argument(help="A new file.")], database: Database = None) -> None:
    """Copy a database of SQLite while it is in use."""
    with opened(database) as store:
        back_up(store, file)
