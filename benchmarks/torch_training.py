"""Trains modules by their plans' programs with four processes over gloo, beside the unsharded modules.

Tiny models of eight families, five steps of `planner.torch.parallelize` under three plans each: FSDP, the fastest, and
the fastest in 0.7 of its memory, with recomputation; and each of them under `torch.compile` (one graph, traced without
a compiler of C++). Losses must be those of the unsharded module, and those after a checkpoint of
torch.distributed.checkpoint the same bit for bit. The result is written after every model. `--only MODEL ...` trains
some, and keeps the rows of the others, each with the commit at which it was measured.
"""

# Takes hours: `make bench` leaves it out.

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measured import MEASURED, measured_commit
from benchmarks.record import describe_older, read_last, write
from planner.planning.plan_types import Request

NAME, MESH, SHARE, GAP = "torch_training", "dp=2,tp=2", 0.7, 0.05
Rows = list[dict[str, Any]]


def measure_training(models: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield for every model and plan the largest relative error of a loss, and what else the processes have seen."""
    from tests.testing.torch_steps import Trained, Training, train_over_gloo

    for model in models:
        limit = int(SHARE * _find_peak(model))
        requests = {
            "FSDP": Request(layout="fsdp", gap=GAP, deterministic=True),
            "fastest": Request(gap=GAP, deterministic=True),
            "tight": Request(limit, gap=GAP, recompute="auto", time_limit_s=60),
        }
        with tempfile.TemporaryDirectory() as folder:
            kinds = [(name, is_compiled) for name in requests for is_compiled in (False, True)]
            trainings = [Training(model, MESH, requests[name], is_compiled=compiled) for name, compiled in kinds]
            answers = train_over_gloo(Path(folder), trainings)
        for (name, is_compiled), ranks in zip(kinds, answers, strict=True):
            row: dict[str, Any] = {"model": model, "plan": name, "compiled": is_compiled}
            seen = [rank for rank in ranks if isinstance(rank, Trained)]
            if len(seen) < len(ranks):
                yield row | {"error": next(rank for rank in ranks if isinstance(rank, str))}
                continue
            errors = [
                abs(got - wanted) / abs(wanted)
                for rank in seen
                for got, wanted in zip(rank.losses, rank.unsharded, strict=True)
            ]
            yield row | {
                "losses": [seen[0].losses[0], seen[0].losses[-1]],
                "largest_error": max(errors),
                "resumed_bit_for_bit": all(rank.is_resumed for rank in seen),
                "held_share": round(max(rank.share for rank in seen), 3),
                "recomputed_ops": seen[0].recomputed,
            }


def _find_peak(model: str) -> int:
    import planner.torch
    from tests.testing.torch_models import seeded

    module, inputs = seeded(model, 1)
    request = Request(gap=GAP, deterministic=True)
    planned = planner.torch.plan(module, inputs, MESH, train="adamw", master="none", request=request)
    assert planned.plan.analysis is not None
    return planned.plan.analysis.peak_bytes


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown, by model, plan and compilation."""
    lines = [
        "| model | plan | compiled | loss, first to fifth | largest error | resumed bit for bit | recomputed ops |"
    ]
    lines.append("|---" * 7 + "|")
    for row in result["rows"]:
        start = f"| {row['model']} | {row['plan']} | {'yes' if row['compiled'] else 'no'} "
        if "error" in row:
            lines.append(f"{start}| {row['error']} | | | |")
            continue
        first, last = row["losses"]
        resumed = "yes" if row["resumed_bit_for_bit"] else "no"
        lines.append(
            f"{start}| {first:.3f} to {last:.3f} | {row['largest_error']:.0e} | {resumed} | {row['recomputed_ops']} |"
        )
    return "\n".join(lines) + "\n" + describe_older(result)


def read_rows() -> Rows:
    """Return the rows of the committed result, each with its commit."""
    result = read_last(NAME) or {"commit": "", "rows": []}
    return [{"commit": result["commit"]} | row for row in result["rows"]]


def main() -> None:
    """Train models and write results/torch_training.json after every model."""
    from tests.testing.torch_models import MODELS

    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", default=[*MODELS], choices=[*MODELS], help="names of models")
    models, commit = parser.parse_args().only, measured_commit(MEASURED[NAME])
    rows = [row for row in read_rows() if row["model"] not in models]
    for row in measure_training(models):
        rows.append({"commit": commit} | row)
        rows.sort(key=lambda row: [*MODELS].index(row["model"]))
        write(NAME, {"mesh": MESH, "rows": rows})


if __name__ == "__main__":
    main()
