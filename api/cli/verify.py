"""`verify`: checks the proof of a plan, without the solver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.command_start import command_deadline
from api.cli.options import JsonOption, PlanArgument, TimeLimitOption, console, print_json
from api.cli.progress import report_progress
from planner.choose.cost import PICO
from planner.documents.json_reader import read_json
from planner.errors import InvalidDocument
from planner.planning.deadline import TimeLimitReached
from planner.planning.infeasible import TIME_LIMIT
from planner.units import format_share, format_time
from planner.usecases.prove import verify_plan


def verify(
    plan_file: PlanArgument,
    proof: Annotated[Path, typer.Argument(help="The proof that `plan --proof` wrote (.json or .json.gz).")],
    time_limit: TimeLimitOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Check the proof of a plan, without the solver, and show what it proves (exit code 1 where it is refused)."""
    plan, written = read_json(plan_file), read_json(proof)
    try:
        with report_progress(command_deadline(time_limit)) as report:
            proven = verify_plan(plan, written, where=str(proof), report=report)
    except (InvalidDocument, TimeLimitReached) as refusal:
        if not as_json:
            raise
        print_json({"verified": False, "reason": str(refusal) or TIME_LIMIT})
        raise typer.Exit(1) from None
    if as_json:
        numbers = {"step_ps": proven.step_ps, "bound_ps": proven.bound_ps, "gap": proven.gap}
        print_json({"verified": True, "reason": None, **numbers})
        return
    step, bound = format_time(proven.step_ps * PICO), format_time(proven.bound_ps * PICO)
    console().print(f"proven: the step is {step}, and no plan's is below {bound} (gap {format_share(proven.gap)})")
