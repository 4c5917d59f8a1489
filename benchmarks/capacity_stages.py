"""Capacity with pipeline stages: the frontier of Llama 3 405B on up to 16,384 H100, as the tutorial of capacity asks.

The command runs as a user runs it, with a time limit for the whole. Its model FLOPs utilisation stands beside the 38 to
43 % that "The Llama 3 Herd of Models" (Meta, 2024, table 4) reports of the same model on as many devices.

    python -m benchmarks.capacity_stages [--time-limit SECONDS]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.record import timed, write
from planner.units import format_bytes, format_share, format_time

MODEL, DEVICES, LIMIT_S = "llama-3-405b", "1024..16384", 600.0
OPTIONS = (
    *("--hardware", "h100-sxm", "--mesh", "dp=?,tp=8", "--seq", "8192", "--global-batch", "2048"),
    *("--train", "adamw", "--precision", "bf16-mixed", "--recompute", "auto", "--pipeline", "auto"),
)
KEPT = ("devices", "stages", "mesh", "schedule", "virtual_stages", "bubble", "searched")
FIGURES = ("step_s", "step_bound_s", "step_gap", "mfu", "peak_bytes", "low_s", "high_s")


def run_command(limit_s: float) -> dict[str, Any]:
    """Return the answer of the command, its seconds, and the load average when it began."""
    result: dict[str, Any] = {"load": os.getloadavg()[0], "limit_s": limit_s}
    with tempfile.TemporaryDirectory() as folder, timed(result, "wall_s"):
        path = Path(folder) / "answer.json"
        command = ["capacity", MODEL, "--devices", DEVICES, *OPTIONS, "--time-limit", str(limit_s), "-o", str(path)]
        script = "from api.cli.main import main; main()"
        subprocess.run([sys.executable, "-c", script, *command], check=True, stdout=subprocess.DEVNULL)
        document = json.loads(path.read_text())
    candidates = document["candidates"]
    reasons = Counter(candidate["skip_reason"] for candidate in candidates if candidate["skip_reason"])
    planned = [candidate for candidate in candidates if candidate.get("step_s")]
    return result | {
        "candidates": len(candidates),
        "planned": len(planned),
        "searched": sum(candidate["searched"] for candidate in planned),
        "skip_reasons": dict(sorted(reasons.items())),
        "frontier": [
            {key: point[key] for key in (*KEPT, *FIGURES)}
            | {key: document["graphs"][point["graph"]][key] for key in ("batch", "microbatches")}
            for point in document["frontier"]
        ],
    }


def table(results: dict[str, Any]) -> str:
    """Return the frontier as a Markdown table."""
    lines = [
        f"{results['candidates']} candidates, {results['planned']} planned, {results['searched']} of them by a search, "
        f"in {results['wall_s']:.0f} s (load average at the start: {results['load']:.1f}).",
        "",
        "| devices | stages | mesh of a stage | micro-batches | schedule | bubble | step | MFU | memory | gap |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for point in results["frontier"]:
        chunks = point["virtual_stages"]
        lines.append(
            f"| {point['devices']:,} | {point['stages']} | {point['mesh']} "
            f"| {point['batch']} x {point['microbatches']} "
            f"| {point['schedule']}{f' x {chunks}' if chunks > 1 else ''} | {format_share(point['bubble'])} "
            f"| {format_time(point['step_s'])} | {format_share(point['mfu'])} | {format_bytes(point['peak_bytes'])} "
            f"| {format_share(point['step_gap'])} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the command and write results/capacity_stages.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--time-limit", type=float, default=LIMIT_S)
    result = run_command(parser.parse_args().time_limit)
    write("capacity_stages", {"model": MODEL, "command_devices": DEVICES, **result})


if __name__ == "__main__":
    main()
