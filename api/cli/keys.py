"""Who may use the service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from api.cli.database_option import open_database
from api.cli.options import DatabaseOption, JsonOption, print_json, requires_service_extra

with requires_service_extra():
    from api.jobs.api_keys import ApiKey, ApiKeys, Scope

keys = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@keys.command("create")
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
