"""Fits the constants of training software to published steps, and writes them with their residuals.

    python -m benchmarks.fit_steps FOLDER

FOLDER holds a JSON file for each source, as `benchmarks.predicted_steps` reads them; it is not part of the repository.
The published steps of `benchmarks/data/steps.json` are sources too. Constants minimize a Huber-like loss of the
logarithm of predicted over measured, every source with the weight of at most `MOST_ROWS` rows, and are held to their
start: a constant that the rows do not tell stays there. `held_out` are errors on rows that the fit did not see: a
fifth of the layouts at a time, or, for the default, one whole source at a time. The interval of an answer goes from
the 5th to the 95th percentile of measured over predicted there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares  # type: ignore[import-untyped, unused-ignore]

import planner.usecases.steps.stacks as product
from benchmarks.published_rows import read_published
from planner.errors import ShardplanError
from planner.usecases.predict_rows import BUILT_IN
from planner.usecases.steps.memory import count_peak_bytes
from planner.usecases.steps.rows import StepRow, read_step_row
from planner.usecases.steps.stacks import Stack
from planner.usecases.steps.step_time import StepSizes, list_sizes, time_step
from planner.usecases.steps.work import StepWork, count_work

OUTPUT = Path(product.__file__).parent / "stacks.json"
PULL, SOFT, MOST_ROWS, FOLDS = 0.3, 0.05, 400, 5
NOISY = "run-to-run spread"
"""Rows whose source calls them comparable to 40 % only are not fitted."""
Array = NDArray[np.float64]

START = Stack(
    source="",
    product=1.2,
    fp8_product=0.65,
    attention=1.2,
    fuses_attention=True,
    score_passes=16.0,
    pointwise=30.0,
    logit_passes=8.0,
    layer_host_s=2e-3,
    tp_host_s=3e-4,
    expert_host_s=2e-3,
    tp_node_host_s=1e-4,
    tp_stage_host_s=1e-6,
    tp_stage_nodes=0.2,
    micro_batch_host_s=1e-3,
    step_host_s=0.02,
    tp_traffic=1.2,
    expert_traffic=0.8,
    fsdp_traffic=0.3,
    gradient_traffic=0.7,
    gather_traffic=1.0,
    reduced_overlap=0.5,
    node_slowdown=1e-3,
    send_stall_s=1e-4,
    stall_devices=1e9,
    update_bytes=40.0,
    balances_head=False,
    activation_bytes=34.0,
    unsplit_bytes=1.0,
    logit_bytes=10.0,
    stage_logit_bytes=8.0,
    work_bytes=6.0,
    base_bytes=1e9,
    gradient_bytes=4.0,
    zero_stage=0,
    recomputes_to_fit=False,
    usable=0.92,
    low=0.8,
    high=1.4,
)
COMMON = (
    "product", "attention", "pointwise", "logit_passes", "layer_host_s", "tp_host_s", "micro_batch_host_s",
    "step_host_s", "tp_traffic", "gradient_traffic", "update_bytes",
)  # fmt: skip
FUSED = (*COMMON, "fp8_product", "expert_host_s", "expert_traffic", "fsdp_traffic", "gather_traffic", "node_slowdown")
MEMORY = ("activation_bytes", "unsplit_bytes", "logit_bytes", "stage_logit_bytes", "work_bytes", "base_bytes")


class Software(NamedTuple):
    """Words that name a software, the sources that measured it, constants that are set, and those that are fitted."""

    named_by: tuple[str, ...]
    sources: tuple[str, ...]
    fixed: Mapping[str, Any]
    fitted: tuple[str, ...]


NEW = ("internevo", "jax-toolbox", "megatron-bridge", "mlperf-training", "llm-foundry", "korthikanti2022",
       "torchtitan-202412", "torchtitan-asynctp-202506", "megatron-lm-llama-fp8")  # fmt: skip
SOFTWARE = {
    "nanotron": Software(
        ("nanotron", "ultrascale"),
        ("ultrascale",),
        {
            "balances_head": True, "stall_devices": 512.0, "reduced_overlap": 0.8, "layer_host_s": 4.2e-3,
            "tp_stage_host_s": 2.3e-3, "send_stall_s": 0.57, "step_host_s": 0.06, "update_bytes": 190.0,
            "gather_traffic": 8.6, "gradient_traffic": 1.65, "node_slowdown": 0.013, "product": 1.5,
            "activation_bytes": 50.0, "unsplit_bytes": 2.3, "stage_logit_bytes": 5.0, "base_bytes": 4e8,
            "usable": 0.875,
        },
        ("product", "pointwise", "layer_host_s", "tp_node_host_s", "tp_stage_host_s", "tp_stage_nodes",
         "micro_batch_host_s", "step_host_s", "tp_traffic", "gather_traffic", "node_slowdown", "update_bytes",
         "send_stall_s", "gradient_traffic"),
    ),
    "megatron-deepspeed": Software(
        ("deepspeed", "bigscience", "vtrain"),
        ("bigscience", "vtrain-single"),
        {"fuses_attention": False, "reduced_overlap": 0.01, "zero_stage": 3},
        ("product", "score_passes", *COMMON[2:]),
    ),
    "megatron": Software(
        ("megatron", "nemo", "mlperf"),
        ("megatron-bridge", "mlperf-training", "korthikanti2022", "megatron-lm-llama-fp8"),
        {"zero_stage": 1, "recomputes_to_fit": True},
        FUSED,
    ),
    "internevo": Software(("internevo", "internlm"), ("internevo",), {"gradient_bytes": 2.0, "zero_stage": 1}, FUSED),
    "pytorch": Software(
        ("pytorch", "neusight"),
        ("neusight-label",),
        {},
        ("product", "score_passes", "pointwise", "logit_passes", "layer_host_s"),
    ),
    "xla": Software(("maxtext", "pax", "t5x", "jax"), ("jax-toolbox",), {}, FUSED),
    "default": Software((), NEW, {}, FUSED),
}  # fmt: skip


class Measured(NamedTuple):
    """Rows of a source that can be predicted: what they ask, what was measured, and a key of their layout."""

    rows: list[StepRow]
    step_s: Array
    peak_bytes: Array
    layouts: list[str]
    sources: list[str]

    def only(self, chosen: Array) -> Measured:
        """Return the rows for which `chosen` is true."""
        at = np.flatnonzero(chosen)
        lists = ([each[i] for i in at] for each in (self.rows, self.layouts, self.sources))
        rows, layouts, sources = lists
        return Measured(rows, self.step_s[at], self.peak_bytes[at], layouts, sources)  # type: ignore[arg-type]


def read_measured(sources: Mapping[str, Sequence[Mapping[str, Any]]]) -> Measured:
    """Return all rows that ran, of all sources."""
    found: list[tuple[StepRow, float, float, str, str]] = []
    for name, rows in sources.items():
        for row in rows:
            if row.get("status", "ok") not in ("ok", "memory_only") or NOISY in (row.get("note") or ""):
                continue
            try:
                read = read_step_row(row, BUILT_IN)
            except ShardplanError:
                continue
            layout = json.dumps([row.get("model"), row["devices"], row["layout"]], sort_keys=True)
            peak = float(row.get("peak_memory_bytes") or np.nan)
            found.append((read, float(row.get("step_s") or np.nan), peak, layout, name))
    rows_, steps, peaks, layouts, names = zip(*found, strict=True)
    return Measured(list(rows_), np.array(steps), np.array(peaks), list(layouts), list(names))


def stack_work(rows: Sequence[StepRow]) -> tuple[StepWork, StepSizes]:
    """Return the work and the sizes of rows as arrays."""
    works, sizes = zip(*((count_work(row), list_sizes(row)) for row in rows), strict=True)
    return StepWork(*np.array(works, float).T), StepSizes(*np.array(sizes, float).T)


def fit(start: Stack, names: Sequence[str], residuals: Callable[[Stack], Array], weights: Array) -> Stack:
    """Return the constants that minimize the soft loss of weighted residuals, held to their start."""
    first = np.log([getattr(start, name) for name in names])

    def at(point: Array) -> Stack:
        found: dict[str, Any] = dict(zip(names, np.exp(point).tolist(), strict=True))
        return replace(start, **found)

    def loss(point: Array) -> Array:
        left = residuals(at(point))
        soft = np.sign(left) * SOFT * np.sqrt(2 * (np.sqrt(1 + (left / SOFT) ** 2) - 1))
        return np.concatenate([soft * weights, PULL * (point - first)])

    return at(np.asarray(least_squares(loss, first, diff_step=1e-3, max_nfev=80).x))


def fit_time(start: Stack, names: Sequence[str], measured: Measured) -> Stack:
    """Return the constants with those of time fitted."""
    timed = measured.only(np.isfinite(measured.step_s))
    work, sizes = stack_work(timed.rows)
    counts = {name: timed.sources.count(name) for name in timed.sources}
    weights = np.sqrt([min(1.0, MOST_ROWS / counts[name]) for name in timed.sources])

    def residuals(stack: Stack) -> Array:
        return np.asarray(np.log(sum(time_step(work, sizes, stack).values()) / timed.step_s))

    return fit(start, names, residuals, weights)


def fit_memory(start: Stack, measured: Measured) -> Stack:
    """Return the constants with those of memory fitted."""
    known = measured.only(np.isfinite(measured.peak_bytes))
    if len(known.rows) < 2 * len(MEMORY):
        return start

    def residuals(stack: Stack) -> Array:
        return np.log(np.array([count_peak_bytes(row, stack) for row in known.rows]) / known.peak_bytes)

    return fit(start, MEMORY, residuals, np.ones(len(known.rows)))


def time_all(stack: Stack, measured: Measured) -> Array:
    """Return the predicted seconds of rows."""
    return np.asarray(sum(time_step(*stack_work(measured.rows), stack).values()))


def hold_out(name: str, start: Stack, measured: Measured) -> Array:
    """Return measured over predicted, each row by a fit that did not see its layout, or its source for the default."""
    timed = measured.only(np.isfinite(measured.step_s))
    keys = timed.sources if name == product.DEFAULT_STACK else [_fold(each) for each in timed.layouts]
    ratios = np.full(len(keys), np.nan)
    for key in sorted(set(keys)):
        out = np.array([each == key for each in keys])
        fitted = fit_time(start, SOFTWARE[name].fitted, timed.only(~out))
        ratios[out] = timed.step_s[out] / time_all(fitted, timed.only(out))
    return ratios


def _fold(layout: str) -> str:
    return str(hashlib.sha256(layout.encode()).digest()[0] % FOLDS)


def describe(name: str, measured: Measured, stack: Stack, ratios: Array) -> dict[str, Any]:
    """Return the document of a software's constants."""
    error = np.abs(1 / ratios - 1)
    peaks = np.array([count_peak_bytes(row, stack) for row in measured.rows]) / measured.peak_bytes
    known = np.abs(peaks[np.isfinite(peaks)] - 1)
    low, high = np.quantile(ratios, [0.05, 0.95])
    stack = replace(stack, low=_round(low), high=_round(high), source=", ".join(SOFTWARE[name].sources))
    constants = {key: _round(value) if isinstance(value, float) else value for key, value in asdict(stack).items()}
    timed = measured.only(np.isfinite(measured.step_s))
    sources = {each: error[[name == each for name in timed.sources]] for each in sorted(set(timed.sources))}
    return {
        "named_by": list(SOFTWARE[name].named_by),
        "rows": len(ratios),
        "held_out": _errors(error),
        "held_out_by_source": {source: _errors(own) for source, own in sources.items()},
        "memory": {"rows": len(known), "median": _round(np.median(known))} if len(known) else None,
        "fitted": list(SOFTWARE[name].fitted),
        "constants": constants,
    }


def _errors(error: Array) -> dict[str, float]:
    return {"rows": len(error), "median": _round(np.median(error)), "p90": _round(np.quantile(error, 0.9))}


def _round(value: Any) -> float:
    return float(f"{float(value):.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the constants of training software.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    files = {path.stem: json.loads(path.read_text())["rows"] for path in sorted(folder.glob("*.json"))}
    measured = read_measured({**files, **read_published()})
    found = {}
    for name, software in SOFTWARE.items():
        own = measured.only(np.array([each in software.sources for each in measured.sources]))
        start = replace(START, **software.fixed)
        stack = fit_memory(fit_time(start, software.fitted, own), own)
        found[name] = describe(name, own, stack, hold_out(name, start, own))
        print(name, found[name]["rows"], found[name]["held_out"], found[name]["memory"], flush=True)
    OUTPUT.write_text(json.dumps({"stacks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
