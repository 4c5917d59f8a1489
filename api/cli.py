"""The command line. Bad input and wrong usage end in one message on standard error and exit code 1.

A command's module is imported when the command is run, so that `--help` waits for none of them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from api.errors import one_message


class Home(NamedTuple):
    """Where a command lives, `module:function` or `module:group`, and its help in one line."""

    place: str
    summary: str


COMMANDS = {
    "plan": Home("api.planning:plan", "Choose how every op of a graph is sharded."),
    "demo": Home("api.demo:demo", "Plan GPT-2 small in little memory, run the plan, show it, write its report."),
    "validate": Home("api.reviewing:validate", "Run a plan on logical devices, beside the unsharded graph."),
    "show": Home("api.reviewing:show", "Show a plan as a page to review."),
    "diff": Home("api.reviewing:diff", "Compare two plans: layouts, and the terms of time and memory that moved."),
    "check": Home("api.checking:check", "Hold a change against its base in CI: what became dearer, and why."),
    "capacity": Home("api.capacity:capacity", "Find the fewest, cheapest and fastest devices for a model."),
    "explain": Home("api.explaining:explain", "Say where time and memory go, and what other options would cost."),
    "report": Home("api.reporting:report", "Write a plan, or two side by side, as one page that opens offline."),
    "import": Home("api.importing:app", "Turn a framework's model into a graph document."),
    "export": Home("api.rewriting:export", "Write a plan's program in another tool's language."),
    "propagate": Home("api.rewriting:complete", "Complete the annotations of a graph."),
    "partition": Home("api.rewriting:partition", "Turn an annotated graph into an SPMD program."),
    "reshard": Home("api.resharding:reshard", "Find the cheapest program between two shardings of a tensor."),
    "migrate": Home("api.resharding:migrate", "Take parameters and states from one plan's layout to another's."),
    "solve": Home("api.solving:solve", "Solve a choice problem in the public form."),
    "serve": Home("api.serving:serve", "Serve plans over HTTP, with one worker inside."),
    "worker": Home("api.serving:worker", "Solve plans for the servers of a database."),
    "keys": Home("api.administering:keys", "Who may use the service."),
    "admin": Home("api.administering:admin", "The care of the service's database."),
    "hardware": Home("api.profiles:app", "The hardware profiles known here."),
}


class Commands(TyperGroup):
    """The commands by name, each loaded when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return loaded(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, home.summary) for name, home in COMMANDS.items()])


def loaded(name: str) -> Any:
    """A command with its parameters read from its function's signature."""
    module, attribute = COMMANDS[name].place.split(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name)(found)
        found = single
    return get_command(found)


app = typer.Typer(
    cls=Commands,
    help="Plan how a model is sharded over a device mesh, with a proven bound; run the plan; show why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def shardplan() -> None:
    """Plan how a model is sharded over a device mesh, with a proven bound; run the plan; show why."""


def main() -> None:
    """Run the command line; the process ends with the exit code."""
    sys.exit(one_message(app))
