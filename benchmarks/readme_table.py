"""The table of headline figures in README: each figure comes from a committed result and links to its page."""

from __future__ import annotations

import json
from collections.abc import Collection
from statistics import median_low
from typing import Any, NamedTuple

from benchmarks.record import RESULTS, count_older

Result = dict[str, Any]


class Figure(NamedTuple):
    """A row of the table: the measurement, its value, and the page of docs/benchmarks with the full result."""

    what: str
    value: str
    page: str


def table() -> str:
    """Return the figures as a Markdown table, each with the commit and date of its result."""
    lines = ["| measurement | value | commit, date |", "|---|---|---|"]
    for name, read in FIGURES.items():
        result = json.loads((RESULTS / f"{name}.json").read_text())
        figure = read(result)
        link = f"[{result['commit']}, {result['date']}](docs/benchmarks/{figure.page})"
        lines.append(f"| {figure.what} | {figure.value} | {link} |")
    return "\n".join(lines)


def _planning(result: Result) -> Figure:
    row = next(row for row in result["planned"] if row["model"] == "llama-7b" and row["layers"] == 32)
    solved = row["folded"][0]
    value = f"proven within {solved['gap']:.1%} of the fastest plan after {solved['solve_s']:.1f} s of solving"
    return Figure(f"Llama 7B, a training step with Adam, planned for 64 H100s ({row['mesh']})", value, "planning.md")


def _accounting(result: Result) -> Figure:
    random, models = result["accounts"]["random"], result["accounts"]["models"]
    run = random["plans"] + random["programs_of_random_choices"] + models["plans"]
    right = run - len(random["wrong"]) - len(models["wrong"])
    value = f"{right} of {run} programs"
    return Figure("bytes received and peak memory counted as predicted, to the byte", value, "execution.md")


def _training(result: Result) -> Figure:
    largest = max(row["largest_error"] for row in result["rows"])
    what = f"{result['steps']} training steps from our exports under JAX and DTensor, loss against the unsharded model"
    return Figure(what, f"largest relative error {largest:.0e}", "execution.md")


def _steps(result: Result) -> Figure:
    what = f"{result['rows']} published training steps on A100 and H100 predicted, nothing fitted to them"
    return Figure(what, f"median error {result['median_error']:.1%}", "costs.md")


def _solving(result: Result) -> Figure:
    by_name: dict[str, list[Result]] = {}
    for row in result["runs"]:
        if "winner_contest" in row:
            by_name.setdefault(row["instance"], []).append(row)
    won = [median_low(row["cost"] for row in rows) <= rows[0]["winner_contest"] for rows in by_name.values()]
    gap = max(row["gap"] for rows in by_name.values() for row in rows)
    value = f"{sum(won)} of {len(won)} at or below the winner's cost (median of seeds), proven within {gap:.2%}"
    return Figure("public instances of the IOPDDL contest, on two cores", value, "solver.md")


def _count_complete(result: Result, families: Collection[str]) -> str:
    counts = [steps["training"] for family, steps in result["counts"].items() if family in families]
    value = f"{sum(each.get('complete', 0) for each in counts)} of {sum(sum(each.values()) for each in counts)}"
    older = count_older(result).total()
    return f"{value} ({older} of {len(result['models'])} imports at an earlier commit)" if older else value


def _language_models(result: Result) -> Figure:
    what = "causal and encoder models of transformers whose training step is imported without a replicated op"
    return Figure(what, _count_complete(result, ("causal", "encoder")), "models.md")


def _vision_models(result: Result) -> Figure:
    what = "architectures of torchvision and timm, likewise"
    return Figure(what, _count_complete(result, result["counts"]), "models.md")


FIGURES = {
    "zoo": _planning,
    "plan_accounting": _accounting,
    "training_parity": _training,
    "published_steps": _steps,
    "solver": _solving,
    "model_zoo_coverage": _language_models,
    "vision_model_coverage": _vision_models,
}
