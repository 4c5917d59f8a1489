"""OpenTelemetry spans of a plan's time in the queue and of a child process; FastAPI makes the span of a request.

Without OpenTelemetry, or without a collector, nothing is recorded. With the extra `otel`, `shardplan serve` and
`shardplan worker` send spans to OTEL_EXPORTER_OTLP_ENDPOINT under the name OTEL_SERVICE_NAME; the exporter's other
variables apply too. A plan is stored with the span of its request, so that the spans of whichever worker solves it
belong to the same trace (W3C Trace Context).
"""

from __future__ import annotations

import os
import re
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
_TRACEPARENT = re.compile("00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


@contextmanager
def span(name: str, attributes: dict[str, Any], traceparent: str | None = None) -> Iterator[dict[str, Any]]:
    """Record a span around a block; what the yielded mapping holds at the end becomes the span's attributes.

    `traceparent` is the span that caused it; None: the current one.
    """
    values = dict(attributes)
    if _tracer is None:
        yield values
        return
    with _tracer.start_as_current_span(name, _load_context(traceparent)) as current:
        try:
            yield values
        finally:
            current.set_attributes(values)


def record_wait(name: str, seconds: float, attributes: dict[str, Any], *, traceparent: str | None = None) -> None:
    """Record a span of the given length that ends now."""
    if _tracer is not None:
        ended_at = time.time_ns()
        times = {"start_time": ended_at - int(1e9 * seconds)}
        _tracer.start_span(name, _load_context(traceparent), attributes=attributes, **times).end(ended_at)


def current_traceparent(received: str | None) -> str | None:
    """Return the current span as text, or where there is none what was received with a request, if it is valid."""
    context = None if _tracer is None else trace.get_current_span().get_span_context()
    if context is not None and context.is_valid:
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return received if received is not None and _TRACEPARENT.fullmatch(received) else None


def _load_context(traceparent: str | None) -> Any:
    """Return the context of a span in another process, or None, which stands for the current context."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    if match is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    parent = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))


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
