"""`verify`: checks the proof of a plan, without the solver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import JsonOption, PlanArgument, console, print_json
from planner.choose.cost import PICO
from planner.documents.json_reader import read_json
from planner.units import format_share, format_time
from planner.usecases.prove import verify_plan


def verify(
    plan_file: PlanArgument,
    proof: Annotated[Path, typer.Argument(help="The proof that `plan --proof` wrote (.json or .json.gz).")],
    as_json: JsonOption = False,
) -> None:
    """Check the proof of a plan, without the solver, and show what it proves (exit code 1 where it is refused)."""
    proven = verify_plan(read_json(plan_file), read_json(proof), where=str(proof))
    if as_json:
        print_json({"step_ps": proven.step_ps, "bound_ps": proven.bound_ps, "gap": proven.gap})
        return
    step, bound = format_time(proven.step_ps * PICO), format_time(proven.bound_ps * PICO)
    console().print(f"proven: the step is {step}, and no plan's is below {bound} (gap {format_share(proven.gap)})")
