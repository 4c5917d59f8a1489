"""`python -m api.jobs.child_main`: a nursery of processes that do one piece of work each and may be killed at any time.

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
from api.http import requests_capacity
from api.http.requests import PlanInputs, PlanRequest, at_pointer, build_plan_inputs, pack_json, unpack_json
from api.http.requests_reshard import answer_reshard
from api.jobs import fork_server
from api.jobs.ipc import IpcMessage, receive_message, send_message
from api.model_formats import convert_model
from planner import pipeline
from planner.choose.cost import PICO
from planner.documents.check_report import dump_check
from planner.documents.plans import dump_plan, dump_verdict, parse_plan
from planner.documents.programs import load_program
from planner.documents.report import dump_report
from planner.documents.schemas import validate_document
from planner.errors import ShardplanError
from planner.export.formats import export_program
from planner.export.report import html_page
from planner.frontends.zoo import import_zoo
from planner.judge.check.limits import parse_limits
from planner.run.validate import validate
from planner.usecases.check import compare_plans

ReportProgress = Callable[[dict[str, Any]], None]
TaskFunction = Callable[[Any, ReportProgress], tuple[dict[str, Any], Any]]
"""From an ask to what is said of the result, and the result."""

GRACE_S = 5.0
"""By how much the process's own clock is later than the server's."""
_TENSOR = {"shape": [8, 8], "dtype": "f32"}
WARM_UP_REQUEST = {
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


def plan_task(ask: Any, report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """The plan document, and its status, incumbent, bound and gap."""
    asked: PlanInputs = build_plan_inputs(validate_document(PlanRequest, ask, "body"))

    def progress(now: solvers.Progress) -> None:
        best = None if now.incumbent is None else now.incumbent * PICO
        report({"incumbent_s": best, "bound_s": now.bound * PICO, "gap": now.gap, "elapsed_s": now.elapsed_s})

    document = dump_plan(
        pipeline.plan(asked.graph, asked.mesh, asked.hardware, request=asked.request, on_progress=progress)
    )
    solver = document["solver"]
    numbers = {"incumbent_s": solver["objective_s"], "bound_s": solver["bound_s"], "gap": solver["gap"]}
    status = "timeout" if solver["status"] == "unknown" else solver["status"]
    return {"status": status, "id": document["id"], **numbers}, document


def validation_task(ask: Any, _report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """The verdict of having run a plan."""
    with at_pointer("/plan"):
        program = load_program(parse_plan(ask["plan"], "plan"))
    return {}, dump_verdict(validate(program, ask["backend"], ask["shrink"], ask["precision"], ask["seed"]))


def export_task(ask: Any, _report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """A plan's program in another tool's language."""
    try:
        return {}, export_program(load_program(parse_plan(ask["plan"], "plan")), ask["format"])
    except ShardplanError as error:
        raise error.at(f"format {ask['format']}") from error


def report_task(ask: Any, _report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """What a plan's report shows, or the report as a page."""
    found = dump_report(*(parse_plan(plan, "plan") for plan in ask["plans"]))
    return {}, html_page(found) if ask["form"] == "html" else found


def check(ask: Any, _report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """A plan held against its base; one of another version is planned again."""
    base, new = (parse_plan(ask[key], key) for key in ("base", "new"))
    return {}, dump_check(compare_plans(base, new), parse_limits(ask["fail_on"], "fail_on"))


def reshard_task(ask: Any, _report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """The cheapest program between two shardings."""
    return {}, answer_reshard(ask)


def capacity_task(ask: Any, _report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """Which devices a model needs."""
    return {}, requests_capacity.answer_capacity(ask)


def conversion_task(ask: Any, _report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """The graph document of a model in another tool's form."""
    return {}, convert_model(ask)


def model(ask: Any, _report: ReportProgress) -> tuple[dict[str, Any], Any]:
    """The graph document of a built-in model."""
    return {}, import_zoo(**ask)


TASKS: Mapping[str, TaskFunction] = {
    "plan": plan_task,
    "validation": validation_task,
    "export": export_task,
    "report": report_task,
    "check": check,
    "reshard": reshard_task,
    "capacity": capacity_task,
    "conversion": conversion_task,
    "model": model,
}


def serve_tasks(works: Mapping[str, TaskFunction]) -> None:
    """Bear children that do a piece of work each."""
    fork_server.serve_forks(partial(_run_one_task, works))


def _run_one_task(works: Mapping[str, TaskFunction], asks: IO[bytes], out: IO[bytes]) -> None:
    """Do one piece of work, if one comes."""
    asked = receive_message(asks)
    if asked is None:
        return
    send_message(out, IpcMessage({"kind": "begun"}))
    _set_limits(asked.head)
    end = threading.Thread(target=_exit_with_server, daemon=True)
    end.start()
    send_message(out, _perform(works[asked.head["kind"]], asked.payload, out))
    end.join()  # so that what the work has left running ends too


def _perform(work: TaskFunction, payload: bytes, out: IO[bytes]) -> IpcMessage:
    try:
        head, result = work(
            unpack_json(payload), lambda told: send_message(out, IpcMessage({"kind": "incumbent", **told}))
        )
        return IpcMessage({"kind": "result", **head}, pack_json(result))
    except ShardplanError as error:
        told = {"what": error.what, "where": error.where, "got": error.got, "wanted": error.wanted}
        return IpcMessage({"kind": "refused", **told, "pointer": error.pointer, "message": str(error)})
    except MemoryError:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        return IpcMessage({"kind": "failed", "error": f"out of memory (limit {limit} bytes)"})
    except Exception as error:  # noqa: BLE001 - told in one line, whatever it is; the rest is in the log
        traceback.print_exc()
        return IpcMessage({"kind": "failed", "error": f"fault of the planner: {type(error).__name__}: {error}"[:500]})


def _set_limits(head: Mapping[str, Any]) -> None:
    """Processor seconds from now on, address space in all, seconds on the wall's clock; no core files."""
    seconds = int(time.process_time()) + head["cpu_s"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if head["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_AS, (head["memory_bytes"], head["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, head["wall_s"] + GRACE_S)


def _exit_with_server() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    plan_task(WARM_UP_REQUEST, lambda told: None)  # what this loads, numba's kernels too, no child loads again
    serve_tasks(TASKS)
