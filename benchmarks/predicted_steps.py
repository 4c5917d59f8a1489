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

The only fitted constant is the host's time for an instruction. `other_sources` says what the prediction is worth where
the source was never seen: the constant is the best of `HOST_US` on the fitting half of the sweeps of all other sources,
and the interval goes from the 5th to the 95th percentile of measured over predicted there, all sources of equal weight;
both are scored on all rows of the source. A sweep's half is drawn by the hash of its name.
"""

from __future__ import annotations

import argparse
import hashlib
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
from planner.usecases.predict_steps import HOST_S, predict_steps

Row = Mapping[str, Any]
HOST_US = (0, 10, 20, 30, 40, 50, 60, 80, 100)
CLOSE, LEAST_SWEEP = 0.05, 4
QUANTILES = (0.05, 0.95)
KINDS: dict[str, Callable[[Row], bool]] = {
    "tp": lambda row: (row["layout"].get("tp") or 1) > 1,
    "pp": lambda row: (row["layout"].get("pp") or 1) > 1,
    "dp": lambda row: (row["layout"].get("dp") or 1) > 1,
    "micro_batch_1": lambda row: row["micro_batch"] == 1,
}
"""Kinds of rows whose bias is told apart from that of all others."""


def read_rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that ran and have a time, by the name of their file."""
    files = sorted(folder.glob("*.json"))
    found = {path.stem: json.loads(path.read_text())["rows"] for path in files}
    return {name: [row for row in rows if row["status"] == "ok" and row["step_s"]] for name, rows in found.items()}


def is_kept_apart(row: Row) -> bool:
    """Return whether nothing may be fitted to a row: half of the sweeps, whole ones."""
    return hashlib.sha256(f"{row['source']}|{row['group']}".encode()).digest()[0] % 2 == 0


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
    ratios = [answer["step_s"] / row["step_s"] for row, answer in good]
    pairs = [(row, answer["step_s"]) for row, answer in good]
    (right, number), lost = order(pairs), regrets(pairs)
    peaks = [
        abs(answer["peak_memory_bytes"] / row["peak_memory_bytes"] - 1)
        for row, answer in good
        if row.get("peak_memory_bytes")
    ]
    return figures | {
        **_errors(ratios),
        "coverage": _share(answer["low_s"] <= row["step_s"] <= answer["high_s"] for row, answer in good),
        "pairs": number,
        "order": round(right / number, 3) if number else None,
        "sweeps": len(lost),
        "regret": {"mean": round(mean(lost), 3), "at_most_5_percent": _share(r <= CLOSE for r in lost)}
        if lost
        else None,
        "memory": {"rows": len(peaks), "median_error": round(median(peaks), 3)} if peaks else None,
        "bias_of": {kind: _bias_of(good, holds) for kind, holds in KINDS.items()},
    }


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


def leave_one_out(ratios: Mapping[str, Mapping[int, list[tuple[bool, float]]]]) -> dict[str, Any]:
    """Return each source's errors with the constant and the interval of the other sources.

    `ratios` are by source and by microseconds of the host: whether the row is kept apart, predicted over measured.
    """
    found = {}
    for source in ratios:
        others = [each for name, each in ratios.items() if name != source]
        seen = [{us: [r for kept, r in rows if not kept] for us, rows in each.items()} for each in others]
        seen = [each for each in seen if all(each.values())]
        if not seen:
            continue
        host_us = min(HOST_US, key=lambda us: mean(median(abs(r - 1) for r in each[us]) for each in seen))
        inverse = [1 / r for each in seen for r in each[host_us]]
        weights = [1 / len(each[host_us]) for each in seen for _ in each[host_us]]
        low, high = np.quantile(inverse, QUANTILES, weights=weights, method="inverted_cdf")
        unseen = [r for _, r in ratios[source][host_us]]
        found[source] = {
            "rows": len(unseen),
            "host_us": host_us,
            **_errors(unseen),
            "interval": [round(float(low), 3), round(float(high), 3)],
            "coverage": _share(low <= 1 / r <= high for r in unseen),
        }
    return found


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown tables."""
    head = (
        "| source | rows (refused) | error, median / p90 | bias | order (pairs) | regret (sweeps) | coverage | memory |"
    )
    lines = []
    for name, own in result["sources"].items():
        count = f"{own['predicted']} ({own['rows'] - own['predicted']})"
        if not own["predicted"]:
            lines.append(f"| {name} | {count} | | | | | | |")
            continue
        ordered = f"{own['order']:.2f} ({own['pairs']})" if own["pairs"] else ""
        lost = f"{own['regret']['mean']:.1%} ({own['sweeps']})" if own["regret"] else ""
        memory = f"{own['memory']['median_error']:.1%} ({own['memory']['rows']})" if own["memory"] else ""
        error = f"{own['median_error']:.1%} / {own['p90_error']:.1%} | {own['bias']:+.1%}"
        lines.append(f"| {name} | {count} | {error} | {ordered} | {lost} | {own['coverage']:.0%} | {memory} |")
    second = "| source never seen | rows | host, us | error, median / p90 | bias | interval | coverage |"
    unseen = [
        f"| {name} | {own['rows']} | {own['host_us']} | {own['median_error']:.1%} / {own['p90_error']:.1%} |"
        f" {own['bias']:+.1%} | {own['interval'][0]:.2f} to {own['interval'][1]:.2f} | {own['coverage']:.0%} |"
        for name, own in result["other_sources"].items()
    ]
    rate = f"{result['rows_per_s']:.0f} rows a second."
    both = [head, "|---|---|---|---|---|---|---|---|", *lines, "", second, "|---|---|---|---|---|---|---|", *unseen]
    return "\n".join([*both, "", rate])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare predicted with measured training steps.")
    parser.add_argument("folder", type=Path)
    sources = read_rows(parser.parse_args().folder)
    start = perf_counter()
    answers = {name: predict_steps(rows) for name, rows in sources.items()}
    taken = perf_counter() - start
    figures = {name: score(rows, answers[name]) for name, rows in sources.items()}
    ratios: dict[str, dict[int, list[tuple[bool, float]]]] = {}
    for name, rows in sources.items():
        good = [row for row, answer in zip(rows, answers[name], strict=True) if "error" not in answer]
        for us in HOST_US if good else ():
            with_host = predict_steps(good, host_s=us * 1e-6)
            told = [(is_kept_apart(r), a["step_s"] / r["step_s"]) for r, a in zip(good, with_host, strict=True)]
            ratios.setdefault(name, {})[us] = told
        print(name, figures[name], flush=True)
    rate = sum(map(len, sources.values())) / taken
    fitted = {"host_us": round(HOST_S * 1e6), "rows_per_s": round(rate, 1)}
    write("predicted_steps", {**fitted, "sources": figures, "other_sources": leave_one_out(ratios)})


if __name__ == "__main__":
    main()
