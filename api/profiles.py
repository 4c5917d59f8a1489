"""`hardware`: the profiles that plans are priced with."""

from __future__ import annotations

import typer

from api.console import Json, print_json
from planner.choose import hardware

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.command("list")
def list_hardware(as_json: Json = False) -> None:
    """Names of the built-in profiles."""
    names = hardware.names()
    if as_json:
        print_json({"hardware": names})
    else:
        typer.echo("\n".join(names))


@app.command("show")
def show_hardware(name: str) -> None:
    """A profile with the source of every number."""
    typer.echo(hardware.source_text(name), nl=False)
