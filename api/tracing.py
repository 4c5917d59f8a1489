"""Spans, for whoever collects them with OpenTelemetry: a request (FastAPI makes that one; it gets the request's id), a
plan's wait in line, and the run of a child. Where OpenTelemetry is not installed, or nobody collects, nothing is done.

With the extra `otel`, `shardplan serve` and `shardplan worker` send them to where OTEL_EXPORTER_OTLP_ENDPOINT says,
under OTEL_SERVICE_NAME; the exporter's other variables hold as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from planner.errors import InvalidRequest

try:
    from opentelemetry import trace
except ModuleNotFoundError:
    _tracer: Any = None
else:
    _tracer = trace.get_tracer("shardplan")

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PLAN, REQUEST, OUTCOME = "shardplan.plan_id", "shardplan.request_id", "shardplan.outcome"
"""Names of attributes."""


@contextmanager
def span(name: str, attributes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Around a piece of work; what is in the mapping when it ends becomes attributes."""
    found = dict(attributes)
    if _tracer is None:
        yield found
        return
    with _tracer.start_as_current_span(name) as current:
        try:
            yield found
        finally:
            current.set_attributes(found)


def record_wait(name: str, seconds: float, attributes: dict[str, Any]) -> None:
    """What lasted so long, and is over now."""
    if _tracer is not None:
        now = time.time_ns()
        _tracer.start_span(name, attributes=attributes, start_time=now - int(1e9 * seconds)).end(now)


def set_attribute(name: str, value: str) -> None:
    """An attribute of the span that is under way."""
    if _tracer is not None:
        trace.get_current_span().set_attribute(name, value)


def start_export() -> None:
    """Sends spans from now on, where the environment says where to. Raises InvalidRequest without the extra."""
    if not os.environ.get(ENDPOINT):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise InvalidRequest(f"no module {error.name}", where=ENDPOINT, wanted="pip install shardplan[otel]") from None
    os.environ.setdefault("OTEL_SERVICE_NAME", "shardplan")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
