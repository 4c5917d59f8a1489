"""`python -m api.work`: a nursery of processes that do one piece of work each and may be killed at any time.

On a child's standard input a line of JSON (`kind`, limits, `bytes` of what follows) and the packed ask; its answer is
lines of JSON: `begun`, `incumbent` while it solves, then `result` with the bytes that follow, `refused` where the ask
is at fault, or `failed`. Whatever a library prints goes to standard error. When the server is gone, standard input
ends, and so does the process with its group. A clock that runs out kills it even where the server cannot.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, Any

import solvers
from api import nursery, sizing
from api.asking import Asked, PlanAsked, asked_from, packed, pointed, unpacked
from api.foreign import imported
from api.messages import Message, receive, send
from api.ways import reshard
from planner import pipeline
from planner.choose.cost import PICO
from planner.documents.gates import gate_document
from planner.documents.plans import checked_plan, plan_document, verdict_document
from planner.documents.programs import program_from
from planner.documents.reports import report_document
from planner.documents.schemas import checked
from planner.errors import ShardplanError
from planner.export.formats import exported
from planner.export.report import html_page
from planner.frontends.zoo import import_zoo
from planner.gating import compared
from planner.judge.gate.thresholds import thresholds
from planner.run.validate import validate

Report = Callable[[dict[str, Any]], None]
Work = Callable[[Any, Report], tuple[dict[str, Any], Any]]
"""From an ask to what is said of the result, and the result."""

GRACE_S = 5.0
"""By how much the process's own clock is later than the server's."""
_TENSOR = {"shape": [8, 8], "dtype": "f32"}
FIRST = {
    "graph": {
        "format": "shardplan.graph",
        "version": 1,
        "name": "first",
        "inputs": [{"id": name, "kind": "input", "name": name, **_TENSOR} for name in "xy"],
        "nodes": [{"id": "z", "op": "add", "inputs": ["x", "y"], "outputs": [_TENSOR]}],
        "outputs": ["z"],
    },
    "mesh": "2x2",
}
"""What is planned before any child is born."""


def plan(ask: Any, report: Report) -> tuple[dict[str, Any], Any]:
    """The plan document, and its status, incumbent, bound and gap."""
    asked: Asked = asked_from(checked(PlanAsked, ask, "body"))

    def progress(now: solvers.Progress) -> None:
        best = None if now.incumbent is None else now.incumbent * PICO
        report({"incumbent": best, "bound": now.bound * PICO, "gap": now.gap, "elapsed_s": now.elapsed_s})

    document = plan_document(pipeline.plan(asked.graph, asked.mesh, asked.hardware, asked.request, progress))
    solver = document["solver"]
    numbers = {"incumbent": solver["objective_s"], "bound": solver["bound_s"], "gap": solver["gap"]}
    status = "timeout" if solver["status"] == "unknown" else solver["status"]
    return {"status": status, "id": document["id"], **numbers}, document


def validation(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    """The verdict of having run a plan."""
    with pointed("/plan"):
        program = program_from(checked_plan(ask["plan"], "plan"))
    return {}, verdict_document(validate(program, ask["backend"], ask["shrink"], ask["precision"], ask["seed"]))


def export(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    """A plan's program in another tool's language."""
    try:
        return {}, exported(program_from(checked_plan(ask["plan"], "plan")), ask["format"])
    except ShardplanError as error:
        raise error.at(f"format {ask['format']}") from error


def report(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    """What a plan's report shows, or the report as a page."""
    found = report_document(*(checked_plan(plan, "plan") for plan in ask["plans"]))
    return {}, html_page(found) if ask["form"] == "html" else found


def check(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    """A plan held against its base; one of another version is planned again."""
    base, new = (checked_plan(ask[key], key) for key in ("base", "new"))
    return {}, gate_document(compared(base, new), thresholds(ask["fail_on"], "fail_on"))


def resharding(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    """The cheapest program between two shardings."""
    return {}, reshard(ask)


def capacity(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    """Which devices a model needs."""
    return {}, sizing.capacity(ask)


def conversion(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    """The graph document of a model in another tool's form."""
    return {}, imported(ask)


def model(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    """The graph document of a built-in model."""
    return {}, import_zoo(**ask)


WORKS: Mapping[str, Work] = {
    "plan": plan,
    "validation": validation,
    "export": export,
    "report": report,
    "check": check,
    "reshard": resharding,
    "capacity": capacity,
    "conversion": conversion,
    "model": model,
}


def serve(works: Mapping[str, Work]) -> None:
    """Bear children that do a piece of work each."""
    nursery.serve(partial(_live, works))


def _live(works: Mapping[str, Work], asks: IO[bytes], out: IO[bytes]) -> None:
    """Do one piece of work, if one comes."""
    asked = receive(asks)
    if asked is None:
        return
    send(out, Message({"kind": "begun"}))
    _limit(asked.head)
    end = threading.Thread(target=_end_with_the_server, daemon=True)
    end.start()
    send(out, _done(works[asked.head["kind"]], asked.payload, out))
    end.join()  # so that what the work has left running ends too


def _done(work: Work, payload: bytes, out: IO[bytes]) -> Message:
    try:
        head, result = work(unpacked(payload), lambda told: send(out, Message({"kind": "incumbent", **told})))
        return Message({"kind": "result", **head}, packed(result))
    except ShardplanError as error:
        told = {"what": error.what, "where": error.where, "got": error.got, "wanted": error.wanted}
        return Message({"kind": "refused", **told, "pointer": error.pointer, "message": str(error)})
    except MemoryError:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        return Message({"kind": "failed", "cause": f"out of memory (limit {limit} bytes)"})
    except Exception as error:  # noqa: BLE001 - told in one line, whatever it is; the rest is in the log
        traceback.print_exc()
        return Message({"kind": "failed", "cause": f"fault of the planner: {type(error).__name__}: {error}"[:500]})


def _limit(head: Mapping[str, Any]) -> None:
    """Processor seconds from now on, address space in all, seconds on the wall's clock; no core files."""
    seconds = int(time.process_time()) + head["cpu_s"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if head["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_AS, (head["memory_bytes"], head["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, head["wall_s"] + GRACE_S)


def _end_with_the_server() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    plan(FIRST, lambda told: None)  # what this loads, numba's kernels too, no child loads again
    serve(WORKS)
