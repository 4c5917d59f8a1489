"""Spans that a collector receives: a plan's time in the queue and the run of its child, with the plan's id."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")
pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed: pip install shardplan[otel]")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from api import tracing
from api.tracing import OUTCOME, PLAN, REQUEST, current_traceparent, record_wait, set_attribute, span
from planner.errors import InvalidRequest
from tests.testing.service import MISBEHAVING, ask, ended, named, serving

pytestmark = pytest.mark.service

Spans = Callable[[], list[ReadableSpan]]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """What was collected, in the order of its ends."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    return lambda: list(exporter.get_finished_spans())


def test_spans_cover_the_wait_and_the_run_of_a_plan(spans: Spans, database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        plan = ask(client, named("exit")).json()["id"]
        ended(client, plan)
    line, child = (each for each in spans() if each.attributes and each.attributes.get(PLAN) == plan)
    assert (line.name, child.name) == ("queued", "child plan")
    assert child.attributes is not None
    assert child.attributes[OUTCOME] == "failed"
    assert line.end_time is not None
    assert child.start_time is not None
    assert line.start_time is not None
    assert line.start_time <= line.end_time <= child.start_time


def test_spans_of_a_worker_belong_to_the_trace_of_the_request(spans: Spans, database: str) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    sent = {"traceparent": f"00-{trace_id}-{span_id}-01"}
    with serving(database, children=MISBEHAVING) as client:
        plan = ask(client, named("exit"), headers=sent).json()["id"]
        ended(client, plan)
    of_plan = [each for each in spans() if each.attributes and each.attributes.get(PLAN) == plan]
    assert {f"{each.context.trace_id:032x}" for each in of_plan if each.context} == {trace_id}
    assert [f"{each.parent.span_id:016x}" for each in of_plan if each.parent] == [span_id, span_id]


def test_the_current_span_is_stored_rather_than_what_was_sent_and_nothing_else_than_a_span_is(spans: Spans) -> None:
    sent = f"00-{'1' * 32}-{'2' * 16}-01"
    with span("request", {}):
        stored = current_traceparent(sent)
    (request,) = spans()
    assert request.context is not None
    assert stored is not None
    assert stored.startswith(f"00-{request.context.trace_id:032x}-{request.context.span_id:016x}-")
    assert current_traceparent(sent) == sent
    for wrong in (None, "", "x" * 300, sent.upper() + "G", f"00-{'0' * 32}-{'2' * 16}-01", sent + "-more"):
        assert current_traceparent(wrong) is None


def test_attributes_are_set_on_the_current_span(spans: Spans) -> None:
    with span("outer", {PLAN: "a"}) as told:
        set_attribute(REQUEST, "b")
        record_wait("inner", 2.0, {})
        told[OUTCOME] = "c"
    inner, outer = spans()
    assert dict(outer.attributes or {}) == {PLAN: "a", REQUEST: "b", OUTCOME: "c"}
    assert inner.end_time is not None
    assert inner.start_time is not None
    assert inner.end_time - inner.start_time == 2_000_000_000


def test_nothing_is_recorded_without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    with span("outer", {PLAN: "a"}) as told:
        set_attribute(REQUEST, "b")
        record_wait("inner", 2.0, {})
        told[OUTCOME] = "c"
    assert told == {PLAN: "a", OUTCOME: "c"}


def test_sending_spans_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracing.ENDPOINT, raising=False)
    tracing.start_export()
    monkeypatch.setenv(tracing.ENDPOINT, "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidRequest, match=r"shardplan\[otel\]"):
        tracing.start_export()
