"""What this process counted since it started, and the plans in its database, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

REQUEST_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SOLVE_BUCKETS_S = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)

disable_created_metrics()  # type: ignore[no-untyped-call]


class _PlansInDatabase(Collector):
    """The number of plans by status, read when the metrics are."""

    def __init__(self, count_plans: Callable[[], Mapping[str, int]]) -> None:
        self.count_plans = count_plans

    def collect(self) -> Iterator[GaugeMetricFamily]:
        gauge = GaugeMetricFamily("shardplan_plans", "Plans in the database, by status.", labels=["status"])
        for status, count in self.count_plans().items():
            gauge.add_metric([status], count)
        yield gauge


class Metrics:
    """The metrics of this process, safe to use from all of its threads.

    `count_plans` returns the number of plans in the database by status.
    """

    def __init__(self, count_plans: Callable[[], Mapping[str, int]]) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "shardplan_requests", "Requests answered, by method and status.", ["method", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "shardplan_request_seconds",
            "Seconds from a request to the end of its answer, by method.",
            ["method"],
            registry=registry,
            buckets=REQUEST_BUCKETS_S,
        )
        self._queue_seconds = Histogram(
            "shardplan_queue_seconds", "Seconds that plans waited.", registry=registry, buckets=SOLVE_BUCKETS_S
        )
        self._solves = Counter(
            "shardplan_solves", "Solves that ended in this process, by status.", ["status"], registry=registry
        )
        self._solve_seconds = Histogram(
            "shardplan_solve_seconds",
            "Seconds of solving, by status.",
            ["status"],
            registry=registry,
            buckets=SOLVE_BUCKETS_S,
        )
        self._repeats = Counter("shardplan_repeats", "Requests for plans that were planned already.", registry=registry)
        registry.register(_PlansInDatabase(count_plans))

    def count_request(self, method: str, status: int, seconds: float) -> None:
        self._requests.labels(method, str(status)).inc()
        self._request_seconds.labels(method).observe(seconds)

    def count_start(self, waited_s: float) -> None:
        self._queue_seconds.observe(waited_s)

    def count_solve(self, status: str, seconds: float) -> None:
        self._solves.labels(status).inc()
        self._solve_seconds.labels(status).observe(seconds)

    def count_repeat(self) -> None:
        self._repeats.inc()

    def format(self) -> str:
        """Return all metrics in Prometheus's text format, version 0.0.4."""
        return generate_latest(self._registry).decode()
