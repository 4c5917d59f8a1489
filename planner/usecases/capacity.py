"""Find the devices that a model needs, by planning few of many meshes.

Candidates are visited in order (`CapacitySearch.sort_candidates`), fewest devices first. A candidate is skipped where
it is proven that this loses nothing:

    memory      some device would hold more than its limit (`planner.judge.roofline_bounds`)
    infeasible  no plan fits on a mesh that refines this one (`planner.judge.mesh_candidates`)
    bound       a known plan is no worse than any plan of the candidate can be (`planner.judge.pareto`), by the least
                time of the work itself and by the bounds of the meshes that refine this one

The others are planned, from the choice of the nearest mesh with as many axes as a start and with a cutoff: the search
ends once its bound shows that a known plan is no worse. `processes` candidates are planned at a time. The next one is
chosen when the oldest ends, from the results of all but those still running, so that the outcome depends on the number
of processes and not on their speed. The frontier consists of plans that were found, and no skipped candidate beats it
by more than the requested gap. Work grows linearly in the candidates planned; where n is a power of two, n devices form
O(log(n)^(k - 1)) meshes of k axes.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import solvers
from planner import pipeline
from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import parse_hardware
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.planning.plan_types import Plan
from planner.usecases.capacity_question import CandidateResult, CandidateTask, CapacityQuestion, SkippedCandidate
from planner.usecases.capacity_search import BOUNDED, CapacitySearch

StartTask = Callable[[CandidateTask], Callable[[], CandidateResult] | None]
"""Starts planning a candidate and returns a function that waits for its result, or None where no time is left."""


def search_meshes(
    question: CapacityQuestion,
    *,
    processes: int = 1,
    ask: StartTask | None = None,
    time_limit_s: float | None = None,
    known: Mapping[int, CandidateResult] | None = None,
    on_outcome: Callable[[CapacitySearch, int], None] | None = None,
) -> CapacitySearch:
    """Plan or skip every candidate.

    processes   candidates to plan at a time
    ask         starts a candidate; None: in processes of this machine
    known       outcomes of an earlier run, by the candidates' numbers
    on_outcome  called with the search and the number of each candidate that was planned
    """
    search, ends = CapacitySearch(question, dict(known or {})), time.monotonic() + (time_limit_s or math.inf)
    waiting = search.sort_candidates(set(search.order) - search.outcomes.keys())
    running: deque[tuple[int, Callable[[], CandidateResult]]] = deque()
    with nullcontext(ask) if ask else _start_workers(processes) as begun:
        while waiting or running:
            while waiting and len(running) < processes:
                number = waiting.pop(0)
                late = SkippedCandidate("time") if time.monotonic() > ends else None
                reason = search.find_skip_reason(number) or late
                if reason is None and (asked := begun(search.make_task(number))):
                    running.append((number, asked))
                else:
                    search.skipped[number] = reason or SkippedCandidate("time")
            if running:
                number, outcome = running.popleft()
                search.outcomes[number] = outcome()
                waiting = search.sort_candidates(waiting)
                if on_outcome is not None:
                    on_outcome(search, number)
    return search


@contextmanager
def _start_workers(processes: int) -> Iterator[StartTask]:
    if processes == 1:
        yield lambda task: partial(plan_candidate, task)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield lambda task: pool.submit(plan_candidate, task).result


def plan_candidate(task: CandidateTask) -> CandidateResult:
    """Plan a candidate, without baselines, or prove that none of its plans is below the cutoff."""
    began = time.monotonic()
    hardware = parse_hardware(task.profile)
    graph = load_graph(GraphDocument.model_validate(task.graph), task.mesh)
    known = [] if task.start is None else [task.start]
    cutoff = None if task.cutoff_s is None else math.ceil(task.cutoff_s / PICO) + 1
    result = pipeline.solve_choice(graph, CostModel(task.mesh, hardware), task.request, known=known, cutoff=cutoff)
    solution, wall_s = result.solution, time.monotonic() - began
    if solution.reason == solvers.CUT_OFF:
        return CandidateResult(BOUNDED, None, solution.bound * PICO, None, None, None, wall_s, None)
    return CandidateResult(
        status=solution.status,
        objective_s=None if solution.cost is None else solution.cost * PICO,
        bound_s=solution.bound * PICO,
        gap=solution.gap,
        peak_bytes=None
        if solution.assignment is None
        else solvers.evaluate(result.question.problem, solution.assignment).peak,
        least_limit_bytes=solution.min_feasible_limit,
        wall_s=wall_s,
        choice=result.choice,
    )


def plan_in_full(search: CapacitySearch, number: int) -> Plan:
    """Return the plan of a candidate that was planned. It is no worse than the candidate's known choice."""
    task, outcome = search.make_task(number), search.outcomes[number]
    graph = load_graph(GraphDocument.model_validate(task.graph), task.mesh)
    hardware = parse_hardware(task.profile)
    mesh = replace(task.mesh, device=hardware.name)
    known = [] if outcome.choice is None else [outcome.choice]
    return pipeline.plan(graph, mesh, hardware, request=task.request, known=known)
