"""`keys`: creates, lists and revokes API keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from api.cli.database_option import open_database
from api.cli.options import DatabaseOption, JsonOption, print_json, requires_extra

with requires_extra("service", "the service"):
    from api.jobs.api_keys import ApiKey, ApiKeys, Scope

keys = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@keys.command("create")
def add_key(
    tenant: Annotated[str, typer.Argument(help="The tenant; its keys see the same plans.")],
    scope: Annotated[
        Scope, typer.Option(help="read: read plans; plan: also create them; admin: also read metrics.")
    ] = "plan",
    database: DatabaseOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it; it cannot be shown again."""
    with open_database(database) as store:
        key = ApiKeys(store).add(tenant, scope)
    if as_json:
        print_json({"id": key.split("_")[1], "tenant": tenant, "scope": scope, "key": key})
    else:
        typer.echo(key)


@keys.command("list")
def list_keys(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List all keys that were ever created, without their secrets."""
    with open_database(database) as store:
        listed = ApiKeys(store).list_all()
    if as_json:
        print_json({"keys": [_key_document(key) for key in listed]})
    else:
        typer.echo("\n".join("  ".join(map(str, _key_document(key).values())) for key in listed))


@keys.command("revoke")
def revoke_key(key: Annotated[str, typer.Argument(help="The key's id.")], database: DatabaseOption = None) -> None:
    """Revoke a key."""
    with open_database(database) as store:
        ApiKeys(store).revoke(key)


def _key_document(key: ApiKey) -> dict[str, str]:
    created_at = datetime.fromtimestamp(key.created_at, UTC).isoformat(timespec="seconds")
    state = "valid" if key.revoked_at is None else "revoked"
    return {"id": key.id, "tenant": key.tenant, "scope": key.scope, "created_at": created_at, "state": state}
