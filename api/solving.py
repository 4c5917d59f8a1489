"""`solve`: a problem in the public form, alone, with the solver that plans use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import solvers
from api.progress import running
from planner.documents.writing import check_writable, write_json
from planner.errors import InvalidDocument, InvalidRequest
from solvers.public import read_problem

MAX_SEED = (1 << 31) - 1


def solve(
    file: Annotated[Path, typer.Argument(help="A problem in the IOPDDL contest's form (.json or .json.gz).")],
    time_limit: Annotated[float | None, typer.Option(help="Seconds of solving.")] = None,
    gap: Annotated[float, typer.Option(help="Stop when the proven gap is this small.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the solver.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the choice.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Solve a choice problem in the public form: the best choice found, and what is proven about it."""
    if time_limit is not None and not time_limit >= 0:
        raise InvalidRequest("time limit", got=time_limit, wanted="at least 0 seconds")
    if not 0 <= gap < 1:
        raise InvalidRequest("gap", got=gap, wanted="at least 0 and below 1")
    if output:
        check_writable(output)
    problem = _read(file)
    with running("solving"):
        found = solvers.solve(problem, time_limit=time_limit, gap=gap, seed=seed)
    figures = _figures(found)
    if output:
        write_json(output, {**figures, "choice": None if found.choice is None else list(found.choice)})
    typer.echo(json.dumps(figures, allow_nan=False) if as_json else _lines(figures))


def _read(file: Path) -> solvers.Problem:
    try:
        return read_problem(file)
    except solvers.InvalidProblem as error:
        where = error.where if str(file) in error.where else f"{file}: {error.where}"
        raise InvalidDocument(error.what, where=where, got=str(error.got), wanted=error.wanted) from None


def _figures(found: solvers.Solution) -> dict[str, Any]:
    return {
        "status": found.status,
        "cost": found.cost,
        "bound": found.bound,
        "gap": found.gap,
        "reason": found.reason,
        "least_limit": found.least_limit,
        "least_limit_bound": found.least_limit_bound,
        "wall_s": round(found.wall_s, 3),
    }


def _lines(figures: dict[str, Any]) -> str:
    shown = {name.replace("_", " "): value for name, value in figures.items() if value is not None}
    width = max(map(len, shown))
    return "\n".join(f"{name:{width}}  {_shown(value)}" for name, value in shown.items())


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
