"""Runs one solve in a process of its own and records its figures."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

from solvers import Problem, solve
from solvers.isolated_process import stop_idle_processes
from solvers.presolve import presolve
from solvers.solution import Progress, TrajectoryPoint


def solved(problem: Problem, began: float, seconds: float, seed: int, deterministic: bool) -> dict[str, Any]:
    """Solve until `seconds` after `began` (a perf_counter value); return the figures, in wall clock except cpu_s."""
    first: list[float] = []

    def tell(progress: Progress) -> None:
        if progress.incumbent is not None and not first:
            first.append(round(time.perf_counter() - began, 1))

    left = seconds - (time.perf_counter() - began)
    found = solve(problem, time_limit=left, seed=seed, deterministic=deterministic, on_progress=tell)
    row: dict[str, Any] = {
        "seed": seed,
        "status": found.status,
        "cost": found.cost,
        "bound": found.bound,
        "gap": found.gap,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_s": round(processor_s(), 1),
        "peak_mib": peak_bytes() >> 20,
        "first_s": first[0] if first else None,
        "choice": found.assignment,
        "trajectory": _by_second(found.trajectory),
    }
    began = time.perf_counter()
    reduced = presolve(problem)
    row["presolve_s"] = round(time.perf_counter() - began, 1)
    row["left"] = None if reduced is None else reduced.problem.arrays.node_start.size - 1
    return row


def _by_second(trajectory: Sequence[TrajectoryPoint]) -> list[list[Any]]:
    """Return the last point of each second: second, cost, bound and the operator that moved them."""
    last = {int(point.seconds): [point.cost, point.bound, point.operator] for point in trajectory}
    return [[second, *point] for second, point in sorted(last.items())]


def processor_s() -> float:
    """Return the CPU seconds of this process and of its worker processes, which it ends."""
    stop_idle_processes()
    own, beside = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + beside.ru_utime + beside.ru_stime


def peak_bytes() -> int:
    """Return an upper bound of the resident memory: the peak of this process plus that of its largest worker."""
    stop_idle_processes()
    used = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used) << 10


def alone(target: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Call `target` in a fresh process, so that memory and time are its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(target, arguments)


def rows_shown(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    """Return a table of the raw figures for the terminal."""
    lines = ["| instance | seed | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for row in rows:
        cells = [f"{row[key]:.2e}" if isinstance(row.get(key), float) and row[key] < 0.1 else row.get(key)
                 for key in columns]  # fmt: skip
        shown = ["-" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
        lines.append(f"| {row['instance']} | {row['seed']} | {' | '.join(shown)} |")
    return "\n".join(lines)
