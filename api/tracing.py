"""OpenTelemetry spans of a plan's time in the queue and of a child process; FastAPI makes the span of a request.

Without OpenTelemetry, or without a collector, nothing is recorded. With the extra `otel`, `shardplan serve` and
`shardplan worker` send spans to OTEL_EXPORTER_OTLP_ENDPOINT under the name OTEL_SERVICE_NAME; the exporter's other
variables apply too.
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
    """Record a span around a block; what the yielded mapping holds at the end becomes the span's attributes."""
    values = dict(attributes)
    if _tracer is None:
        yield values
        return
    with _tracer.start_as_current_span(name) as current:
        try:
            yield values
        finally:
            current.set_attributes(values)


def record_wait(name: str, seconds: float, attributes: dict[str, Any]) -> None:
    """Record a span of the given length that ends now."""
    if _tracer is not None:
        ended_at = time.time_ns()
        _tracer.start_span(name, attributes=attributes, start_time=ended_at - int(1e9 * seconds)).end(ended_at)


def set_attribute(name: str, value: str) -> None:
    """Set an attribute of the current span."""
    if _tracer is not None:
        trace.get_current_span().set_attribute(name, value)


def start_export() -> None:
    """Send spans where the environment names a collector. Raises InvalidRequest without the extra `otel`."""
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
