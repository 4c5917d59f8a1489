"""Counters since the process started, in Prometheus's text format (version 0.0.4)."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping

METRIC_TYPES = {
    "shardplan_requests_total": ("counter", "Requests answered, by method and status."),
    "shardplan_solves_total": ("counter", "Solves that ended in this process, by status."),
    "shardplan_solve_seconds_total": ("counter", "Seconds of solving, by status."),
    "shardplan_repeats_total": ("counter", "Requests for plans that were planned already."),
    "shardplan_plans": ("gauge", "Plans in the database, by status."),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """The counters of this process, safe to use from all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, Labels], float] = defaultdict(float)

    def count_request(self, method: str, status: int) -> None:
        self._add("shardplan_requests_total", 1, method=method, status=str(status))

    def count_solve(self, status: str, seconds: float) -> None:
        self._add("shardplan_solves_total", 1, status=status)
        self._add("shardplan_solve_seconds_total", seconds, status=status)

    def count_repeat(self) -> None:
        self._add("shardplan_repeats_total", 1)

    def text(self, plans: Mapping[str, int]) -> str:
        """Return all counters, and `plans`: the number of plans in the database by status."""
        with self._lock:
            counts = dict(self._counts)
        counts |= {("shardplan_plans", (("status", status),)): count for status, count in plans.items()}
        return "\n".join(_format_lines(counts)) + "\n"

    def _add(self, name: str, amount: float, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(labels.items())] += amount


def _format_lines(counts: Mapping[tuple[str, Labels], float]) -> Iterator[str]:
    for name, (kind, about) in METRIC_TYPES.items():
        yield f"# HELP {name} {about}"
        yield f"# TYPE {name} {kind}"
        for (_, labels), count in sorted((key, count) for key, count in counts.items() if key[0] == name):
            label_text = ",".join(f'{key}="{text}"' for key, text in labels)
            yield f"{name}{{{label_text}}} {count:.15g}" if label_text else f"{name} {count:.15g}"
