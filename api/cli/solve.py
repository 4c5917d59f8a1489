"""`solve`: solves a file in the IOPDDL contest's format with the solver that plans use."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import solvers
from api.cli.options import JsonOption, OutputOption, print_json
from api.cli.parameters import with_options
from api.cli.progress import show_solve_progress
from api.cli.solver_log import LogOption, write_solver_log
from api.options import ProblemOptions
from planner.documents.json_writer import check_writable, write_json
from planner.errors import InvalidDocument
from solvers.iopddl import read_problem


@with_options
def solve(
    file: Annotated[Path, typer.Argument(help="A problem in the IOPDDL contest's format (.json or .json.gz).")],
    options: ProblemOptions,
    output: OutputOption = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Solve an IOPDDL problem, and print the cost of the best solution found and the proven bound.

    The problem: choose one strategy per node, so that the costs of nodes and edges add up to the least, and the memory
    that nodes use over their intervals stays within a limit. The format: https://github.com/google/iopddl. The chosen
    strategies are in the document of --output and --json.
    """
    for path in filter(None, (output, log)):
        check_writable(path)
    problem = _read_problem(file)
    with show_solve_progress() as progress:
        solution = solvers.solve(
            problem,
            time_limit=options.time_limit_s,
            gap=options.gap,
            seed=options.seed,
            processes=options.processes,
            deterministic=options.deterministic,
            on_progress=progress,
        )
    figures = _solution_document(solution, options.deterministic)
    document = {**figures, "choice": None if solution.assignment is None else list(solution.assignment)}
    if output:
        write_json(output, document)
    if log:
        write_solver_log(log, list(map(asdict, solution.log)), list(map(asdict, solution.trajectory)))
    if as_json:
        print_json(document)
    else:
        typer.echo(_format_solution(figures))


def _read_problem(file: Path) -> solvers.Problem:
    try:
        return read_problem(file)
    except solvers.InvalidProblem as error:
        where = error.where if str(file) in error.where else f"{file}: {error.where}"
        raise InvalidDocument(error.what, where=where, got=str(error.got), wanted=error.wanted) from None


def _solution_document(solution: solvers.Solution, deterministic: bool) -> dict[str, Any]:
    return {
        "status": solution.status,
        "cost": solution.cost,
        "bound": solution.bound,
        "bound_numeric": solution.bound_numeric,
        "gap": solution.gap,
        "reason": solution.reason,
        "least_limit": solution.min_feasible_limit,
        "least_limit_bound": solution.min_feasible_limit_bound,
        "wall_s": None if deterministic else round(solution.wall_s, 3),
        "reproducible": solution.reproducible,
        "failures": list(solution.failures),
    }


def _format_solution(figures: dict[str, Any]) -> str:
    shown = {name.replace("_", " "): value for name, value in figures.items() if value not in (None, [])}
    width = max(map(len, shown))
    return "\n".join(f"{name:{width}}  {_format_value(value)}" for name, value in shown.items())


def _format_value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
