"""The command line. Bad input and wrong usage end in one message on standard error and exit code 1.

The module of a command is imported only when the command is run, so that `--help` is fast.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from api.cli.command_start import note_command_start
from api.cli.errors import run_reporting_errors

GARBAGE_THRESHOLD = 100_000
"""New objects after which cyclic garbage is looked for."""


class CommandEntry(NamedTuple):
    """Where a command is defined, as `module:function` or `module:group`, and its help in one line."""

    target: str
    summary: str


COMMANDS = {
    "plan": CommandEntry("api.cli.plan:plan", "Choose how every op of a graph is sharded."),
    "demo": CommandEntry(
        "api.cli.demo:demo", "Plan GPT-2 small in little memory, run the plan, show it, write its report."
    ),
    "validate": CommandEntry(
        "api.cli.validate:validate", "Run a plan on logical devices and compare it with the unsharded graph."
    ),
    "compare-run": CommandEntry(
        "api.cli.compare_run:compare_run", "Compare a run in PyTorch with its plan: bytes, memory and times."
    ),
    "verify": CommandEntry("api.cli.verify:verify", "Check the proof of a plan, without the solver."),
    "show": CommandEntry("api.cli.show:show", "Show a plan as a page to review."),
    "diff": CommandEntry(
        "api.cli.diff:diff", "Compare two plans: layouts, and the terms of time and memory that moved."
    ),
    "check": CommandEntry("api.cli.check:check", "Compare a change with its base in CI: what became worse, and why."),
    "capacity": CommandEntry("api.cli.capacity:capacity", "Find the fewest, cheapest and fastest devices for a model."),
    "explain": CommandEntry(
        "api.cli.explain:explain", "Show where time and memory go, and what other options would cost."
    ),
    "report": CommandEntry(
        "api.cli.report:report", "Write a plan, or two side by side, as one page that opens offline."
    ),
    "import": CommandEntry("api.cli.import_:app", "Turn a framework's model into a graph document."),
    "export": CommandEntry("api.cli.export:export", "Write a plan's program in another tool's language."),
    "propagate": CommandEntry("api.cli.propagate:propagate_graph", "Complete the annotations of a graph."),
    "partition": CommandEntry("api.cli.partition:partition", "Turn an annotated graph into an SPMD program."),
    "optimize": CommandEntry(
        "api.cli.optimize:optimize", "Run collective optimisation passes on MLIR with collectives."
    ),
    "predict": CommandEntry("api.cli.predict:app", "Predict the times of kernels from rows that describe them."),
    "reshard": CommandEntry("api.cli.reshard:reshard", "Find the cheapest program between two shardings of a tensor."),
    "migrate": CommandEntry(
        "api.cli.migrate:migrate", "Move parameters and optimizer state from one plan's layout to another's."
    ),
    "solve": CommandEntry(
        "api.cli.solve:solve", "Solve an IOPDDL file: one strategy per node, at the least cost within a memory limit."
    ),
    "serve": CommandEntry("api.cli.serve:serve", "Serve plans over HTTP, with one worker inside."),
    "worker": CommandEntry("api.cli.worker:worker", "Solve plans for the servers of a database."),
    "keys": CommandEntry("api.cli.keys:keys", "Create, list and revoke API keys."),
    "admin": CommandEntry("api.cli.admin:admin", "Maintain the service's database."),
    "hardware": CommandEntry("api.cli.hardware:app", "List, show, fit and calibrate hardware profiles."),
}


class CommandGroup(TyperGroup):
    """The commands by name; each is loaded on first use."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        note_command_start()
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, home.summary) for name, home in COMMANDS.items()])


def load_command(name: str) -> Any:
    """Return a command with the parameters of its function."""
    module, attribute = COMMANDS[name].target.split(":")
    command = getattr(import_module(module), attribute)
    if not isinstance(command, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name)(command)
        command = single
    return get_command(command)


app = typer.Typer(
    cls=CommandGroup,
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
    """Run the command line and exit with its code."""
    # Graphs and programs are millions of small objects that live until the end and are no cycles.
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 100)
    sys.exit(run_reporting_errors(app))
