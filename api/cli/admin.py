"""`admin`: maintains the service's database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.database_option import open_database
from api.cli.options import DatabaseOption, JsonOption, print_json, requires_extra
from api.settings import DAY_S, WORKER_TTL_S

with requires_extra("service", "the service"):
    from api.jobs.plan_repository import PlanRepository
    from api.jobs.retention import back_up, list_queue, purge
    from api.jobs.workflows import Workflows

admin = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@admin.command("queue")
def show_queue(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Show the number of live workers, plans by status, and the queue."""
    with open_database(database) as store:
        plans, queued = PlanRepository(store), list_queue(store)
        workers, counts = plans.workers(WORKER_TTL_S), plans.counts()
    if as_json:
        print_json({"workers": workers, "plans": counts, "queue": queued})
        return
    typer.echo(f"{workers} workers; plans: {', '.join(f'{n} {status}' for status, n in sorted(counts.items())) or 0}")
    for row in queued:
        typer.echo(f"{row['id'][:12]}  {row['state']:7}  {row['waited_s']:8.1f} s  {row['tenant']}  {row['name']}")


@admin.command("purge")
def purge_plans(
    days: Annotated[float, typer.Option(min=0, help="Delete plans that ended longer ago than this.")],
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete ended plans with their events and documents."""
    with open_database(database) as store:
        count = purge(Workflows(store), days * DAY_S)
    if as_json:
        print_json({"purged": count})
    else:
        typer.echo(f"{count} plans purged")


@admin.command("backup")
def back_up_database(
    file: Annotated[Path, typer.Argument(help="A new file.")], database: DatabaseOption = None
) -> None:
    """Copy an SQLite database while it is in use."""
    with open_database(database) as store:
        back_up(store, file)
