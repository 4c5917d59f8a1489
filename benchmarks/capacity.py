"""Capacity of a cluster for Llama 7B training: how many of all mesh factorisations are planned, and in what time.

On a smaller sweep, the frontier is compared with that of planning every mesh.
"""

from __future__ import annotations

from typing import Any

from benchmarks.record import timed, write
from planner.documents.capacity import dump_capacity
from planner.documents.hardware import read_profile
from planner.frontends.zoo import import_zoo
from planner.judge.mesh_candidates import enumerate_candidates, parse_device_counts
from planner.judge.pareto import pareto_frontier
from planner.planning.plan_types import Request
from planner.usecases.capacity import plan_candidate, search_meshes
from planner.usecases.capacity_question import CapacityQuestion, CapacityWorkload, HardwareOffer
from planner.usecases.capacity_search import CapacitySearch

HARDWARE, GAP, SECONDS, PROCESSES = "h100-sxm", 0.01, 60.0, 2
BATCH, SEQUENCE = 64, 2048
# Name: layers, devices, axes, is every mesh planned too?
SWEEPS = {
    "Llama 7B, 2 layers": (2, "8..64", 2, True),
    "Llama 7B, up to 2 axes": (32, "8..512", 2, False),
    "Llama 7B, up to 3 axes": (32, "8..512", 3, False),
}


def question(layers: int, devices: str, axes: int) -> CapacityQuestion:
    document = import_zoo("llama-7b", layers=layers, batch=BATCH, seq=SEQUENCE, train="adam")
    offers = (HardwareOffer(read_profile(HARDWARE), None),)
    request = Request(gap=GAP, time_limit_s=SECONDS)
    return CapacityQuestion(
        (CapacityWorkload(document, BATCH * SEQUENCE),),
        offers,
        enumerate_candidates(1, 1, parse_device_counts(devices), axes=axes),
        request,
    )


def swept(name: str) -> dict[str, Any]:
    """Run one sweep; return its counts, its frontier, and the frontier's loss against that of all plans."""
    layers, devices, axes, every = SWEEPS[name]
    asked, result = question(layers, devices, axes), dict[str, Any](name=name)
    with timed(result, "wall_s"):
        found = search_meshes(asked, processes=PROCESSES)
    document = dump_capacity(found)
    reasons = [one["skip_reason"] for one in document["candidates"]]
    result |= {
        "candidates": len(reasons),
        "planned": document["planned"],
        "excluded": 1 - document["planned"] / len(reasons),
        "skip_reasons": {each: reasons.count(each) for each in sorted({each for each in reasons if each})},
        "frontier": [
            {key: point[key] for key in ("mesh", "devices", "objective_s", "bound_s", "gap", "peak_bytes")}
            for point in document["frontier"]
        ],
        "statuses": sorted({outcome.status for outcome in found.outcomes.values()}),
    }
    return result | ({"worst_loss": _loss(found)} if every else {})


def _loss(found: CapacitySearch) -> float:
    """Return by what share the exhaustive frontier beats the sweep's, at most, with no more devices."""
    asked, known = found.question, dict(found.points())
    everything = {n: plan_candidate(found.make_task(n)) for n in range(len(asked.candidates))}
    points = {n: asked.point(asked.candidates[n], o.step_s) for n, o in everything.items() if o.step_s}
    return max(
        min(own.time_s for own in known.values() if own.devices <= points[n].devices) / points[n].time_s - 1
        for n in pareto_frontier(points.items())
    )


def table(results: dict[str, Any]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        "| sweep | meshes | planned | skipped | time | frontier (devices: step) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in results["sweeps"]:
        steps = ", ".join(f"{point['devices']}: {point['objective_s']:.3g} s" for point in each["frontier"])
        lines.append(
            f"| {each['name']} | {each['candidates']} | {each['planned']} | {each['excluded']:.0%} "
            f"| {each['wall_s']:.0f} s | {steps} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run all sweeps, writing results/capacity.json after each."""
    done: list[dict[str, Any]] = []
    for name in SWEEPS:
        done.append(swept(name))
        write("capacity", {"hardware": HARDWARE, "gap": GAP, "processes": PROCESSES, "sweeps": done})


if __name__ == "__main__":
    main()
