"""`python -m api.jobs.child_main`: the fork server whose children do one task each and may be killed at any time.

A child reads a line of JSON (`kind`, limits, `bytes` of the payload) and the compressed task from standard input. It
answers with lines of JSON: `begun`, `incumbent` while it solves, `ask` for a plan of the queue, then `result` with a
payload, `refused` where the task is invalid, `exceeded`, or `failed`. Output of libraries goes to standard error. When
the server dies, standard input ends, and the child kills its process group; a timer of its own kills it where the
server cannot.
"""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, Any

from api.http.requests import PlanInputs, PlanRequest, at_pointer, build_plan_inputs, pack_json, unpack_json
from api.http.requests_reshard import answer_reshard
from api.jobs import fork_server
from api.jobs.child_link import ParentLink
from api.jobs.ipc import IpcMessage, receive_message
from api.jobs.sweep_task import answer_capacity
from api.model_formats import convert_model
from planner import pipeline
from planner.choose.cost import PICO
from planner.documents.check_report import dump_check
from planner.documents.pipelines import (
    dump_pipeline,
    dump_pipeline_report,
    dump_pipeline_verdict,
    is_pipeline,
    load_stage_plan,
    parse_any_plan,
    parse_pipeline,
    run_document,
)
from planner.documents.plans import dump_plan, dump_verdict, parse_plan
from planner.documents.programs import load_program
from planner.documents.report import dump_report
from planner.documents.schemas import validate_document
from planner.errors import ShardplanError
from planner.export.formats import export_program
from planner.export.report import html_page
from planner.frontends.zoo import import_zoo
from planner.judge.check.limits import parse_limits
from planner.pipeline_stages.export.formats import export_stages
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.validate import check_stage_backend
from planner.planning.deadline import OnPlanProgress, PlanProgress
from planner.run.validate import validate
from planner.usecases.check import compare_plans

TaskFunction = Callable[[Any, ParentLink], tuple[dict[str, Any], Any]]
"""Does a task; returns the head of the result message, and the result."""

GRACE_S = 5.0
"""The child's own timer fires this much later than the server's."""
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
"""A request that is planned before any child is forked, so that children inherit loaded modules and compiled kernels.
"""


def plan_task(task: Any, parent: ParentLink | None) -> tuple[dict[str, Any], Any]:
    """Return a plan document, with its status, incumbent, bound and gap in the head."""
    inputs: PlanInputs = build_plan_inputs(validate_document(PlanRequest, task, "body"))

    def on_progress(state: PlanProgress) -> None:
        incumbent_s = None if state.incumbent is None else state.incumbent * PICO
        if parent is not None:
            parent.report(
                {
                    "stage": state.stage,
                    "incumbent_s": incumbent_s,
                    "bound_s": state.bound * PICO,
                    "gap": state.gap,
                    "elapsed_s": state.elapsed_s,
                }
            )

    document = _plan_inputs(inputs, on_progress)
    solver = document["solver"]
    numbers = {"incumbent_s": solver["objective_s"], "bound_s": solver["bound_s"], "gap": solver["gap"]}
    status = "timeout" if solver["status"] == "unknown" else solver["status"]
    return {"status": status, "id": document["id"], "progress": numbers}, document


def _plan_inputs(inputs: PlanInputs, on_progress: OnPlanProgress) -> dict[str, Any]:
    graph, mesh, profile = inputs.graph, inputs.mesh, inputs.hardware
    if (stages := inputs.pipeline) is not None:
        planned = plan_pipeline(graph, mesh, profile, pipeline=stages, request=inputs.request, on_progress=on_progress)
        return dump_pipeline(planned, stages)
    return dump_plan(pipeline.plan(graph, mesh, profile, request=inputs.request, on_progress=on_progress))


def validation_task(task: Any, _parent: ParentLink) -> tuple[dict[str, Any], Any]:
    """Return the verdict of running a plan."""
    with at_pointer("/plan"):
        if is_pipeline(task["plan"]):
            document = parse_pipeline(task["plan"], "plan")
            check_stage_backend(task["backend"], task["precision"])
            return {}, dump_pipeline_verdict(run_document(document, seed=task["seed"]))
        program = load_program(parse_plan(task["plan"], "plan"))
    return {}, dump_verdict(validate(program, task["backend"], task["shrink"], task["precision"], task["seed"]))


def export_task(task: Any, _parent: ParentLink) -> tuple[dict[str, Any], Any]:
    """Return a plan's program in another tool's language."""
    if is_pipeline(task["plan"]):
        return {}, export_stages(load_stage_plan(parse_pipeline(task["plan"], "plan")), task["format"])
    return {}, export_program(load_program(parse_plan(task["plan"], "plan")), task["format"])


def report_task(task: Any, _parent: ParentLink) -> tuple[dict[str, Any], Any]:
    """Return the data of a plan's report, or the report as a page."""
    first, *others = task["plans"]
    if is_pipeline(first) and not others:
        report = dump_pipeline_report(first, "plan")
    else:
        compare_to = parse_plan(others[0], "plan") if others else None
        report = dump_report(parse_plan(first, "plan"), compare_to)
    return {}, html_page(report) if task["form"] == "html" else report


def check_task(task: Any, _parent: ParentLink) -> tuple[dict[str, Any], Any]:
    """Return the comparison of a plan with its base; a plan of another version is planned again."""
    base, new = (parse_any_plan(task[key], key) for key in ("base", "new"))
    return {}, dump_check(compare_plans(base, new), parse_limits(task["fail_on"], "fail_on"))


def reshard_task(task: Any, _parent: ParentLink) -> tuple[dict[str, Any], Any]:
    """Return the cheapest program between two shardings."""
    return {}, answer_reshard(task)


def sweep_task(task: Any, parent: ParentLink) -> tuple[dict[str, Any], Any]:
    """Return the answer to a capacity question, whose candidates are planned in the queue."""
    return answer_capacity(task, parent)


def conversion_task(task: Any, _parent: ParentLink) -> tuple[dict[str, Any], Any]:
    """Return the graph document of a model in another tool's format."""
    return {}, convert_model(task)


def model_task(task: Any, _parent: ParentLink) -> tuple[dict[str, Any], Any]:
    """Return the graph document of a built-in model."""
    return {}, import_zoo(**task)


TASKS: Mapping[str, TaskFunction] = {
    "plan": plan_task,
    "validation": validation_task,
    "export": export_task,
    "report": report_task,
    "check": check_task,
    "reshard": reshard_task,
    "sweep": sweep_task,
    "conversion": conversion_task,
    "model": model_task,
}


def serve_tasks(functions: Mapping[str, TaskFunction]) -> None:
    """Fork children that do one task each."""
    fork_server.serve_forks(partial(_run_one_task, functions))


def _run_one_task(tasks: Mapping[str, TaskFunction], requests: IO[bytes], out: IO[bytes]) -> None:
    """Do one task, if one comes."""
    message, parent = receive_message(requests), ParentLink(requests, out)
    if message is None:
        return
    parent.send(IpcMessage({"kind": "begun"}))
    _set_limits(message.head)
    parent.start_receiving()
    parent.send(_perform(tasks[message.head["kind"]], message.payload, parent))
    parent.await_end()


def _perform(task: TaskFunction, payload: bytes, parent: ParentLink) -> IpcMessage:
    try:
        head, result = task(unpack_json(payload), parent)
        return IpcMessage({"kind": "result", **head}, pack_json(result))
    except ShardplanError as error:
        parts = {"got": error.got, "wanted": error.wanted}
        place = {"error_class": type(error).__name__, "pointer": error.pointer}
        return IpcMessage({"kind": "refused", **parts, **place, "message": str(error)})
    except MemoryError:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        return IpcMessage({"kind": "exceeded", "error": f"out of memory (limit {limit} bytes)"})
    except Exception as error:  # noqa: BLE001 - any error is reported in one line; the traceback is in the log
        traceback.print_exc()
        return IpcMessage(
            {"kind": "failed", "error": f"internal error of the planner: {type(error).__name__}: {error}"[:500]}
        )


def _set_limits(head: Mapping[str, Any]) -> None:
    """Limit processor seconds from now on, address space, wall-clock seconds and core files."""
    seconds = int(time.process_time()) + head["cpu_s"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if head["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_AS, (head["memory_bytes"], head["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, head["wall_s"] + GRACE_S)


if __name__ == "__main__":
    plan_task(WARM_UP_REQUEST, None)
    serve_tasks(TASKS)
