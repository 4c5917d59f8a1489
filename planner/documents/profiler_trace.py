"""Chrome traces of torch.profiler (Kineto JSON) as rows: what ran, on which tensors, for how long, in which scope.

A trace lists events with a start and a duration in microseconds. Events of one thread nest by time: an op's event lies
within that of the op that called it, and within the `record_function` scopes around it. A kernel of a device has the
`External id` of the op that launched it. Format: the Trace Event Format of Chromium's tracing, and the `args` that
Kineto writes with `record_shapes=True` (`Input Dims`, `Input type`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.documents.json_reader import read_json
from planner.errors import InvalidDocument

MICRO = 1e-6
OP, SCOPE, KERNELS = "cpu_op", "user_annotation", ("kernel", "gpu_memcpy", "gpu_memset")
DTYPES = {
    "double": "f64",
    "float": "f32",
    "c10::Half": "f16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "f8e4m3",
    "c10::Float8_e5m2": "f8e5m2",
    "long int": "i64",
    "long": "i64",
    "int": "i32",
    "short int": "i16",
    "short": "i16",
    "signed char": "i8",
    "unsigned char": "u8",
    "bool": "bool",
}
"""Our dtypes by the names of C++ types that Kineto writes."""


@dataclass(frozen=True, slots=True)
class ProfiledOp:
    """One run of an op, with the tensors that it read.

    `scope` is the innermost `record_function` around it (empty: none), `run` how often that name was entered before on
    the thread, `depth` the number of ops in the scope that called it.
    `host_s` includes the ops that it called; `device_s` is that of its own kernels, and of those of the ops it called.
    """

    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    host_s: float
    device_s: float
    scope: str
    run: int
    depth: int

    @property
    def time_s(self) -> float:
        """The time on the device where there is one, else on the host."""
        return self.device_s or self.host_s


def read_profiler_trace(path: Path) -> list[ProfiledOp]:
    """Return the ops in a Chrome trace of torch.profiler, gzip or plain, in the order in which they end on each thread.

    Raises InvalidDocument.
    """
    document, where = read_json(path), str(path)
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise InvalidDocument("not a profiler's trace", where=where, got="no list traceEvents", wanted="Kineto JSON")
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    device_s: dict[Any, float] = defaultdict(float)
    for number, event in enumerate(events):
        kind = event.get("cat") if isinstance(event, dict) and event.get("ph") == "X" else None
        if kind not in (OP, SCOPE, *KERNELS):
            continue
        _check_event(event, f"{where}: traceEvents/{number}")
        if kind in KERNELS:
            device_s[event["args"].get("External id")] += event["dur"] * MICRO
        else:
            threads[event.get("pid"), event.get("tid")].append(event)
    return [row for thread in threads.values() for row in _list_ops(thread, device_s)]


def _check_event(event: dict[str, Any], where: str) -> None:
    numbers = all(isinstance(event.get(key), int | float) and event[key] >= 0 for key in ("ts", "dur"))
    if not numbers or not isinstance(event.get("name"), str) or not isinstance(event.setdefault("args", {}), dict):
        raise InvalidDocument("damaged event", where=where, wanted="a name, ts and dur in microseconds, and args")


def _list_ops(events: list[dict[str, Any]], device_s: dict[Any, float]) -> Iterator[ProfiledOp]:
    """Yield the ops of one thread as they end; `device_s` is the time of kernels by the id of the op."""
    open_events: list[tuple[dict[str, Any], list[float]]] = []  # with the kernels' time so far
    entered = Counter[str]()

    def close() -> ProfiledOp | None:
        event, own_s = open_events.pop()
        if open_events:
            open_events[-1][1][0] += own_s[0]
        if event["cat"] == SCOPE:
            return None
        scopes = [place for place, (each, _) in enumerate(open_events) if each["cat"] == SCOPE]
        scope = open_events[scopes[-1]][0]["name"] if scopes else ""
        depth = len(open_events) - (scopes[-1] + 1 if scopes else 0)
        return _describe(event, own_s[0], scope, run=max(entered[scope] - 1, 0), depth=depth)

    for event in sorted(events, key=lambda each: (each["ts"], -each["dur"], each["cat"] == OP)):
        while open_events and _end(open_events[-1][0]) <= event["ts"]:
            if row := close():
                yield row
        has_kernels = event["cat"] == OP
        entered[event["name"]] += not has_kernels
        open_events.append((event, [device_s.get(event["args"].get("External id"), 0.0) if has_kernels else 0.0]))
    while open_events:
        if row := close():
            yield row


def _end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def _describe(event: dict[str, Any], device_s: float, scope: str, *, run: int, depth: int) -> ProfiledOp:
    dims, types = (event["args"].get(key) or [] for key in ("Input Dims", "Input type"))
    tensors = [
        (tuple(shape), DTYPES[kind])
        for shape, kind in zip(dims, types, strict=False)
        if kind in DTYPES and isinstance(shape, list) and all(isinstance(size, int) for size in shape)
    ]
    return ProfiledOp(
        event["name"],
        tuple(shape for shape, _ in tensors),
        tuple(dtype for _, dtype in tensors),
        event["dur"] * MICRO,
        device_s,
        scope,
        run,
        depth,
    )
