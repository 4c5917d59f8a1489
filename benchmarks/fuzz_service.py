"""Fuzzing of the service by schemathesis, with valid and invalid cases from its own OpenAPI description.

The real application runs in this process, with its worker and children. Every operation is called with a key, without
one, and with another tenant's key, for made-up ids and for plans and sweeps that exist, whose event streams are read to
their end. A fault is a 5xx response, one whose status, content type, headers or body the description does not declare,
or one that accepts what the description forbids.

    python -m benchmarks.fuzz_service [CASES [SEED]]      by default 10,000 and 0
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.generation.case import Case
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.http.app import create_app
from api.http.openapi import GRAPH
from api.jobs.api_keys import ApiKeys
from api.jobs.database import Database
from api.model_formats import IMPORTERS
from api.service import Service
from api.settings import Limits, Settings
from api.webhooks.sender import WebhookSender
from benchmarks.record import write
from tests.testing.service import CHILDREN

CASES = 10_000
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
SLOW = ("export", "report")
"""Operations that start a child process: about a plan that exists, one case of so many."""
ONE_OF = 40
FOREIGN = 40
"""The most cases with a model in a foreign format: each starts a child process that imports the tool."""
ANSWER_S = 600.0


@dataclass
class Fuzzed:
    """Counts of requests and responses, and the faults."""

    statuses: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    foreign: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FuzzedService:
    """A running application, the `Authorization` headers to use, and ids that exist, by the parameter of paths."""

    client: Any
    schema: Any
    callers: Sequence[str]
    ids: Sequence[Mapping[str, str]]


@contextmanager
def house() -> Iterator[FuzzedService]:
    """Run a service with two tenants; the first has a finished and a cancelled plan and sweep. No webhooks are sent."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'service.db'}"
        keys = ApiKeys(Database(url))
        owner, stranger = (f"Bearer {keys.add(tenant, 'admin')}" for tenant in ("a", "b"))
        keys.store.close()
        limits = Limits(requests_per_s=1e6, burst=1_000_000, max_queued=1_000_000)
        chosen = Settings(url, keys_required=True, webhooks=True, limits=limits)
        app = create_app(Service(chosen, CHILDREN, WebhookSender(lambda _name, _port: [])))
        with asgi.get_client(app) as client:
            ids = [_end(client, owner, "ended"), _end(client, owner, "cancelled", cancels=True)]
            schema = schemathesis.openapi.from_dict(app.openapi())
            schema.app = app
            yield FuzzedService(client, schema, (*[owner] * 7, stranger, "Bearer nobody", ""), ids)
        asgi.shutdown_lifespans()  # which its client leaves running


def _end(client: Any, key: str, name: str, *, cancels: bool = False) -> dict[str, str]:
    """Return the ids of a plan and of a sweep that have ended, or were cancelled."""
    graph, headers = {**GRAPH, "name": name}, {"Authorization": key}
    question = {"graphs": [graph], "devices": "2..4", "hardware": [{"name": "cpu"}]}
    asked = {"plan": ("/v1/plans", {"graph": graph, "mesh": "dp=2,tp=4"}), "sweep": ("/v1/capacity", question)}
    ids = {}
    for kind, (path, body) in asked.items():
        link = client.post(path, json=body, headers=headers).json()["links"]["self"]
        if cancels:
            client.delete(link, headers=headers)
        while client.get(link, headers=headers).json()["ended_at"] is None:
            time.sleep(0.1)
        ids[kind] = link.rpartition("/")[2]
    return ids


def fuzz(found: FuzzedService, cases: int, first_seed: int = 0) -> Fuzzed:
    """Run `cases` cases, evenly over operations, half of them invalid where the operation has parameters."""
    fuzzed = Fuzzed()
    operations = sorted((each.ok() for each in found.schema.get_all_operations()), key=lambda each: each.label)
    for number, operation in enumerate(operations):
        left = cases - sum(fuzzed.operations.values())
        share = -(-left // (len(operations) - number))
        for mode in (GenerationMode.NEGATIVE, GenerationMode.POSITIVE):
            before = fuzzed.operations[operation.label]
            count = share // 2 if mode is GenerationMode.NEGATIVE else share - before
            _attempt(found, fuzzed, operation, mode, count, first_seed)
    return fuzzed


def _attempt(
    found: FuzzedService, fuzzed: Fuzzed, operation: Any, mode: GenerationMode, count: int, first_seed: int
) -> None:
    places = [{}, *found.ids] if not operation.path.endswith(SLOW) else [{}] * ONE_OF + list(found.ids)

    @seed(first_seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode), st.sampled_from(found.callers), st.sampled_from(places))
    def attempt(case: Case, caller: str, ids: Mapping[str, str]) -> None:
        fuzzed.foreign += case.media_type in IMPORTERS
        assume(case.media_type not in IMPORTERS or fuzzed.foreign <= FOREIGN)
        assume([] not in (case.query or {}).values())  # an empty list is sent as nothing, which is no invalid case
        case.path_parameters.update({name: ids[name] for name in ids.keys() & case.path_parameters.keys()})
        _ask(found, fuzzed, case, caller, mode)

    try:
        attempt()
    except Unsatisfiable:  # an operation without parameters cannot be asked wrongly
        return


def _ask(found: FuzzedService, fuzzed: Fuzzed, case: Case, caller: str, mode: GenerationMode) -> None:
    headers = {"Authorization": caller} if caller else {}
    answer = case.call(session=found.client, headers=headers, timeout=ANSWER_S)
    fuzzed.statuses[str(answer.status_code)] += 1
    fuzzed.operations[case.operation.label] += 1
    fuzzed.modes[mode.value] += 1
    try:
        case.validate_response(answer, checks=CHECKS, headers=headers)
    except FailureGroup as failures:
        fuzzed.faults += [f"{case.operation.label}: {each.title}: {each.message}" for each in failures.exceptions]


def main() -> None:
    cases, first_seed = (int(word) for word in [*sys.argv[1:], *(str(CASES), "0")[len(sys.argv) - 1 :]])
    began = time.process_time()
    with house() as found:
        fuzzed = fuzz(found, cases, first_seed)
    write(
        "fuzz_service",
        {
            "cases": sum(fuzzed.operations.values()),
            "modes": dict(sorted(fuzzed.modes.items())),
            "operations": dict(sorted(fuzzed.operations.items())),
            "statuses": dict(sorted(fuzzed.statuses.items())),
            "server_errors": sum(count for status, count in fuzzed.statuses.items() if status >= "500"),
            "faults": len(fuzzed.faults),
            "kinds": Counter(sorted(fault[:300] for fault in fuzzed.faults)).most_common(20),
            "cpu_s": round(time.process_time() - began, 1),
        },
    )


if __name__ == "__main__":
    main()
