"""Compares `shardplan predict steps` with measured training steps, source by source and sweep by sweep.

    python -m benchmarks.predicted_steps FOLDER

FOLDER holds a JSON file for each source, of `rows` as `predict steps` reads them, with `status` and `step_s`. A sweep
is the rows of one `group`: layouts of one model on the same devices. The measured rows are not part of the repository.

    error     |predicted / measured - 1|; bias: the median of predicted / measured - 1
    order     the share of pairs of a sweep, more than 5 % apart, that are in the measured order (Kendall's tau is
              2 order - 1; a coin has 0.5)
    regret    how much slower the layout predicted to be the fastest is than the fastest of its sweep (4 rows or more)
    coverage  the share of rows within `low_s` and `high_s`
    memory    the error of `peak_memory_bytes`
    fits      the share of rows that ran and are predicted to fit, and of failed ones predicted not to fit; why a run
              failed is not known, so that slow ones are among them

The constants are fitted to these sources (`benchmarks.fit_steps`). `held_out` are errors on rows that a fit did not
see: a fifth of the layouts, or, for `default`, which stands for software that is not known, the whole source.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.record import write
from planner.usecases.predict_steps import predict_steps
from planner.usecases.steps.stacks import read_stacks

Row = Mapping[str, Any]
CLOSE, LEAST_SWEEP = 0.05, 4
KINDS: dict[str, Callable[[Row], bool]] = {
    "tp": lambda row: (row["layout"].get("tp") or 1) > 1,
    "pp": lambda row: (row["layout"].get("pp") or 1) > 1,
    "dp": lambda row: (row["layout"].get("dp") or 1) > 1,
    "micro_batch_1": lambda row: row["micro_batch"] == 1,
}
"""Kinds of rows whose bias is told apart from that of all others."""


def read_rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows by the name of their file."""
    files = sorted(folder.glob("*.json"))
    return {path.stem: json.loads(path.read_text())["rows"] for path in files}


def order(pairs: Iterable[tuple[Row, float]]) -> tuple[int, int]:
    """Return how many pairs within sweeps are in the measured order, and the number of pairs."""
    right = number = 0
    for sweep in _sweeps(pairs):
        for (one, its), (other, others) in combinations(sweep, 2):
            if abs(one["step_s"] / other["step_s"] - 1) > CLOSE:
                number += 1
                right += (one["step_s"] > other["step_s"]) == (its > others)
    return right, number


def regrets(pairs: Iterable[tuple[Row, float]]) -> list[float]:
    """Return, for each sweep, how much slower the layout with the least prediction is than the fastest."""
    sweeps = [sweep for sweep in _sweeps(pairs) if len(sweep) >= LEAST_SWEEP]
    picked = [min(sweep, key=lambda pair: pair[1])[0]["step_s"] for sweep in sweeps]
    return [s / min(row["step_s"] for row, _ in sweep) - 1 for s, sweep in zip(picked, sweeps, strict=True)]


def _sweeps(pairs: Iterable[tuple[Row, float]]) -> list[list[tuple[Row, float]]]:
    found: dict[str, list[tuple[Row, float]]] = defaultdict(list)
    for row, seconds in pairs:
        found[str(row["group"])].append((row, seconds))
    return list(found.values())


def score(rows: Sequence[Row], answers: Sequence[Row]) -> dict[str, Any]:
    """Return the figures of a source."""
    good = [(row, answer) for row, answer in zip(rows, answers, strict=True) if "error" not in answer]
    refused = Counter(answer["error"] for answer in answers if "error" in answer)
    figures: dict[str, Any] = {"rows": len(rows), "predicted": len(good), "refused": dict(refused.most_common())}
    if not good:
        return figures
    timed = [(row, answer) for row, answer in good if row["status"] == "ok" and row["step_s"]]
    pairs = [(row, answer["step_s"]) for row, answer in timed]
    (right, number), lost = order(pairs), regrets(pairs)
    peaks = [
        abs(answer["peak_memory_bytes"] / row["peak_memory_bytes"] - 1)
        for row, answer in good
        if row.get("peak_memory_bytes")
    ]
    return figures | {
        "timed": len(timed),
        **_errors([answer["step_s"] / row["step_s"] for row, answer in timed]),
        "coverage": _share(answer["low_s"] <= row["step_s"] <= answer["high_s"] for row, answer in timed),
        "pairs": number,
        "order": round(right / number, 3) if number else None,
        "sweeps": len(lost),
        "regret": {"mean": round(mean(lost), 3), "at_most_5_percent": _share(r <= CLOSE for r in lost)}
        if lost
        else None,
        "memory": {"rows": len(peaks), "median_error": round(median(peaks), 3)} if peaks else None,
        "fits": {status: _fits(good, status) for status in ("ok", "failed")},
        "bias_of": {kind: _bias_of(timed, holds) for kind, holds in KINDS.items()},
    }


def _fits(good: Sequence[tuple[Row, Row]], status: str) -> float | None:
    """Return the share of rows with a status whose prediction whether they fit agrees with it."""
    right = [answer["fits"] is (status == "ok") for row, answer in good if row["status"] == status]
    return _share(right) if right else None


def _errors(ratios: Sequence[float]) -> dict[str, float]:
    off = np.abs(np.asarray(ratios) - 1)
    found = {"median_error": np.median(off), "p90_error": np.quantile(off, 0.9), "bias": np.median(ratios) - 1}
    return {name: round(float(value), 3) for name, value in found.items()}


def _share(held: Iterable[bool]) -> float:
    return round(mean(float(each) for each in held), 3)


def _bias_of(good: Sequence[tuple[Row, Row]], holds: Callable[[Row], bool]) -> dict[str, dict[str, float] | None]:
    """Return rows and bias of those of a kind, and of the others."""
    found: dict[str, dict[str, float] | None] = {}
    for name, wanted in (("yes", True), ("no", False)):
        ratios = [answer["step_s"] / row["step_s"] for row, answer in good if holds(row) is wanted]
        found[name] = {"rows": len(ratios), "bias": round(median(ratios) - 1, 3)} if ratios else None
    return found


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown tables."""
    head = (
        "| source | rows (refused) | error, median / p90 | bias | order (pairs) | regret, mean; at most 5 % (sweeps) "
        "| coverage | memory | fits: ran / failed |"
    )
    lines = [_line(name, own) for name, own in result["sources"].items()]
    second = "| software | held out | rows | error, median / p90 |"
    unseen = [
        f"| {name} | {source} | {own['rows']} | {own['median']:.1%} / {own['p90']:.1%} |"
        for name, each in result["held_out"].items()
        for source, own in each.items()
    ]
    rate = f"{result['rows_per_s']:.0f} rows a second."
    both = [head, "|---" * 9 + "|", *lines, "", second, "|---" * 4 + "|", *unseen]
    return "\n".join([*both, "", rate])


def _line(name: str, own: dict[str, Any]) -> str:
    count = f"{own['predicted']} ({own['rows'] - own['predicted']})"
    if not own["predicted"]:
        return f"| {name} | {count} | | | | | | | |"
    ordered = f"{own['order']:.2f} ({own['pairs']})" if own["pairs"] else ""
    regret = own["regret"]
    lost = f"{regret['mean']:.1%}; {regret['at_most_5_percent']:.0%} ({own['sweeps']})" if regret else ""
    memory = f"{own['memory']['median_error']:.1%} ({own['memory']['rows']})" if own["memory"] else ""
    error = f"{own['median_error']:.1%} / {own['p90_error']:.1%} | {own['bias']:+.1%}"
    fits = " / ".join("-" if share is None else f"{share:.0%}" for share in own["fits"].values())
    return f"| {name} | {count} | {error} | {ordered} | {lost} | {own['coverage']:.0%} | {memory} | {fits} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare predicted with measured training steps.")
    parser.add_argument("folder", type=Path)
    sources = read_rows(parser.parse_args().folder)
    start = perf_counter()
    answers = {name: predict_steps(rows) for name, rows in sources.items()}
    rate = sum(map(len, sources.values())) / (perf_counter() - start)
    figures = {name: score(rows, answers[name]) for name, rows in sources.items()}
    held_out = {name: each["held_out_by_source"] for name, each in read_stacks().items()}
    write("predicted_steps", {"rows_per_s": round(rate, 1), "sources": figures, "held_out": held_out})


if __name__ == "__main__":
    main()
