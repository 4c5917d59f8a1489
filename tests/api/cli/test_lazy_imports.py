"""The list of commands, and which modules are imported before a command runs."""

from __future__ import annotations

import subprocess
import sys

from api.cli.main import COMMANDS
from tests.testing.command_line import ROOT, shardplan

HEAVY = ("ortools", "cupy", "torch", "transformers", "jax", "jaxlib", "onnx", "sqlalchemy", "mpi4py")

HELP = """
import sys
from api.cli.main import main
sys.argv = ["shardplan", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sys.modules, file=sys.stderr)
"""


def test_help_imports_nothing_heavy() -> None:
    """How long it takes is measured by benchmarks/headline.py."""
    run = subprocess.run([sys.executable, "-c", HELP], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    imported = set(HEAVY) & set(run.stderr.splitlines()[-1].split())
    assert not imported, f"shardplan --help imports {sorted(imported)}"


def test_every_command_in_the_list_is_there_with_help_of_its_own() -> None:
    for name in COMMANDS:
        assert shardplan(name, "--help").out.startswith(f"Usage: shardplan {name}")


RUN_ALONE = """
import sys
import planner.run.validate, planner.run.spmd_executor, planner.documents.programs
print(*sys.modules)
"""


def test_a_program_runs_without_the_solver_and_without_the_service() -> None:
    run = subprocess.run([sys.executable, "-c", RUN_ALONE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    heavy = {"ortools", "numba", "solvers", "api", "fastapi", "typer"} & set(run.stdout.split())
    assert not heavy, f"planner.run imports {sorted(heavy)}"
