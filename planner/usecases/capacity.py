"""Find the devices that a model needs, by planning few of many meshes.

Candidates are visited in order (`CapacitySearch.sort_candidates`), fewest devices first. A candidate is skipped where
it is proven that this loses nothing:

    memory      some device would hold more than its limit (`planner.judge.roofline_bounds`)
    infeasible  no plan fits on a mesh that refines this one (`planner.judge.mesh_candidates`)
    bound       a known plan is no worse than any plan of the candidate can be (`planner.judge.pareto`), by the least
                time of the work itself and by the bounds of the meshes that refine this one

With pipeline stages and a time limit, each candidate is first priced in standard layouts, in all its schedules, the
most promising ones first (`planner.usecases.capacity_stages`). After PRICING_SHARE of the time the fastest of each
number of devices are searched.

The others are planned, from the choice of the nearest mesh with as many axes as a start and with a cutoff: the search
ends once its bound shows that a known plan is no worse. `processes` candidates are planned at a time. The next one is
chosen when the oldest ends, from the results of all but those still running, so that the outcome depends on the number
of processes and not on their speed. The frontier consists of plans that were found, and no skipped candidate beats it
by more than the requested gap. Work grows linearly in the candidates planned; where n is a power of two, n devices form
O(log(n)^(k - 1)) meshes of k axes.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Event

import solvers
from planner import pipeline
from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import parse_hardware
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.judge.step_interval import find_interval
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.planning.deadline import Deadline, TimeLimitReached
from planner.planning.overlap_pricing import overlapped_step_ps
from planner.planning.plan_types import Plan, Request
from planner.usecases.capacity_question import (
    PRICING_SHARE,
    TIME_SHARE,
    CandidateResult,
    CandidateTask,
    CapacityQuestion,
    SkippedCandidate,
)
from planner.usecases.capacity_search import BOUNDED, CapacitySearch
from planner.usecases.capacity_stages import plan_candidate_stages, plan_stages_in_full
from solvers.isolated_process import WorkerFailed, WorkerStopped, run_isolated

StartTask = Callable[[CandidateTask], Callable[[], CandidateResult] | None]
"""Starts planning a candidate and returns a function that waits for its result, or None where no time is left."""
OnCandidate = Callable[[CapacitySearch, int], None]
"""Called with the search and the number of a candidate."""

UNFINISHED = CandidateResult("unknown", None, None, 0.0, None, None, None, 0.0)
"""The result where the time was up before any plan was found: nothing is known."""
FAILED = CandidateResult("failed", None, None, 0.0, None, None, None, 0.0)
"""The result where the process died, for example of lack of memory: nothing is known."""
GRACE_S, FIRST_GRACE_S = 0.5, 2.0
"""A process that still plans so long after the deadline is killed; the latter while no plan of as few devices is
known, which makes it less likely that the answer is empty."""
LEAST_S = 1e-9
"""The time limit of a candidate for which no time is left: it is up at once, and a standard layout is the plan."""


def search_meshes(
    question: CapacityQuestion,
    *,
    processes: int = 1,
    ask: StartTask | None = None,
    deadline: Deadline | None = None,
    known: Mapping[int, CandidateResult] | None = None,
    on_start: OnCandidate | None = None,
    on_outcome: OnCandidate | None = None,
) -> CapacitySearch:
    """Plan or skip every candidate. An interrupt (Ctrl-C) ends the search with what is known.

    processes   candidates to plan at a time
    ask         starts a candidate; None: in processes of this machine
    deadline    when the search has to end; None: never
    known       outcomes of an earlier run, by the candidates' numbers
    on_start    called when the planning of a candidate begins
    on_outcome  called with each candidate that was planned
    """
    search, deadline = CapacitySearch(question, dict(known or {})), deadline or Deadline()
    began_s = deadline.elapsed_s
    search.bounds.prepare()
    # No candidate is planned in less time than its graph takes to read.
    deadline = deadline.sooner((deadline.elapsed_s - began_s) / len(question.graphs))
    if question.pipeline is not None:
        search.pricing = deadline.sooner((1 - PRICING_SHARE) * (deadline.left_s or 0.0))
    try:
        with nullcontext(ask) if ask else _start_workers(processes) as begin:
            _plan_candidates(search, begin, processes, deadline=deadline, on_start=on_start, on_outcome=on_outcome)
    except KeyboardInterrupt:
        search.cancel()
    return search


def _plan_candidates(
    search: CapacitySearch,
    begin: StartTask,
    processes: int,
    *,
    deadline: Deadline,
    on_start: OnCandidate | None,
    on_outcome: OnCandidate | None,
) -> None:
    waiting, is_begun = search.sort_candidates(search.list_unfinished()), bool(search.outcomes)
    running: deque[tuple[int, Callable[[], CandidateResult]]] = deque()
    while waiting or running:
        while waiting and len(running) < processes:
            number = _take_next(search, waiting, deadline)
            late = SkippedCandidate("time") if is_begun and deadline.left_s == 0.0 else None
            reason = search.find_skip_reason(number) or late
            if reason is None and (wait := begin(search.make_task(number, deadline))):
                running.append((number, wait))
                search.running.append(number)
                is_begun = True
                if on_start is not None:
                    on_start(search, number)
            else:
                search.skip(number, reason or SkippedCandidate("time"))
        if running:
            number, wait = running.popleft()
            outcome = wait()
            search.running.remove(number)
            again = [number] if search.submit(number, outcome) else []
            waiting = search.sort_candidates([*waiting, *again])
            if on_outcome is not None and number in search.outcomes:
                on_outcome(search, number)


def _take_next(search: CapacitySearch, waiting: list[int], deadline: Deadline) -> int:
    """Remove and return the next candidate to plan.

    It is the first in order; but as long as time is limited and no plan is known, the one that is likely to have a plan
    soon: the largest axis that splits the batch evenly, as data parallelism does; then most devices, fewest axes,
    fewest tokens.
    """
    place = 0
    if deadline.seconds is not None and search.question.pipeline is None and not search.running and not search.points():

        def ease(number: int) -> tuple[int, int, int, int]:
            one = search.question.candidates[number]
            batch = search.question.graphs[one.graph].batch or 0
            splits = max((axis.size or 1 for axis in one.mesh.axes if batch % (axis.size or 1) == 0), default=1)
            return splits, one.devices, -len(one.mesh.axes), -(search.question.graphs[one.graph].tokens or 0)

        place = max(range(len(waiting)), key=lambda each: ease(waiting[each]))
    return waiting.pop(place)


@contextmanager
def _start_workers(processes: int) -> Iterator[StartTask]:
    """Yield a function that starts a candidate: in this process, or in one of several that can be killed."""
    if processes == 1:
        yield lambda task: partial(plan_candidate, task)
        return
    cancelled = Event()
    with ThreadPoolExecutor(processes) as pool:
        try:
            yield lambda task: pool.submit(_plan_isolated, task, cancelled).result
        finally:
            cancelled.set()


def _plan_isolated(task: CandidateTask, cancelled: Event) -> CandidateResult:
    """Plan a candidate in a process of its own, which is killed when its result is not wanted any more."""

    grace_s = FIRST_GRACE_S if task.cutoff_s is None else GRACE_S

    def is_unwanted() -> bool:
        return cancelled.is_set() or task.deadline.is_within(-grace_s)

    try:
        return run_isolated(partial(plan_candidate, task), is_unwanted)
    except WorkerStopped:
        return UNFINISHED
    except WorkerFailed:
        return FAILED


def plan_candidate(task: CandidateTask) -> CandidateResult:
    """Plan a candidate, without baselines, or prove that none of its plans is below the cutoff."""
    began = time.monotonic()
    hardware = task.request.adjust_hardware(parse_hardware(task.profile))
    graph = load_graph(GraphDocument.model_validate(task.graph), task.mesh)
    known = [] if task.start is None else [task.start]
    cutoff = None if task.cutoff_s is None else math.ceil(task.cutoff_s / PICO) + 1
    request = _limit_time(task.request, task.deadline, share=task.share)
    if task.pipeline is not None:
        try:
            task.deadline.check()
            return plan_candidate_stages(task, graph, hardware, request=request)
        except TimeLimitReached:
            return UNFINISHED
    plan = pipeline.solve_step(graph, CostModel(task.mesh, hardware), request, known=known, cutoff=cutoff)
    proven, wall_s = plan.certificate, time.monotonic() - began
    if proven.reason == solvers.CUT_OFF:
        return CandidateResult(BOUNDED, None, None, proven.bound_s, None, None, None, wall_s, None)
    step_s, low_s, high_s = _find_step(plan)
    return CandidateResult(
        status=proven.status,
        step_s=step_s,
        objective_s=proven.objective_s,
        bound_s=proven.bound_s,
        gap=proven.gap,
        peak_bytes=None if plan.analysis is None else plan.analysis.peak_bytes,
        least_limit_bytes=proven.least_limit_bytes,
        wall_s=wall_s,
        choice=plan.choice,
        low_s=low_s,
        high_s=high_s,
    )


def _find_step(plan: Plan) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return a plan's step with overlap and the ends of its interval; None without a plan."""
    if plan.analysis is None:
        return None, None, None
    step_s = overlapped_step_ps(plan.analysis, plan.limit_bytes) * PICO
    interval = find_interval(plan.analysis, step_s)
    return step_s, interval.low_s, interval.high_s


def _limit_time(request: Request, deadline: Deadline, *, share: float) -> Request:
    """Return the request with no more than a share of the time left."""
    if deadline.left_s is None:
        return request
    left_s = max(LEAST_S, share * deadline.left_s)
    return replace(request, time_limit_s=min(left_s, request.time_limit_s or math.inf))


def plan_in_full(search: CapacitySearch, number: int, deadline: Deadline | None = None) -> Plan | PipelinePlan:
    """Return the plan of a candidate that was planned. It is no worse than the candidate's known choice.

    It has no program where the `deadline` is reached. Raises TimeLimitReached where it was before.
    """
    deadline = deadline or Deadline()
    deadline.check()
    request = _limit_time(search.question.request, deadline, share=TIME_SHARE)
    task, outcome = search.make_task(number), search.outcomes[number]
    graph = load_graph(GraphDocument.model_validate(task.graph), task.mesh)
    hardware = parse_hardware(task.profile)
    if task.pipeline is not None:
        return plan_stages_in_full(task, graph, hardware, request=request)
    mesh = replace(task.mesh, device=hardware.name)
    known = [] if outcome.choice is None else [outcome.choice]
    return pipeline.plan(graph, mesh, hardware, request=request, known=known)
