"""Which devices a model needs: many meshes, few of them planned.

Candidates are taken in turn (`CapacitySearch.order`), fewest devices first. One is passed over where that is proven to
lose nothing:

    memory      some device would hold more than its limit (`planner.judge.roofline_bounds`)
    infeasible  a mesh that covers it (`planner.judge.mesh_candidates`) fits no plan
    bound       a plan is known that is no worse than anything there (`planner.judge.pareto`), by the least time of
                the work itself and by what was proven of the meshes that cover it

What is left is asked as any plan is, with the choice of the nearest mesh of as many axes as a start, and with a cutoff:
where its own bound comes to show that the plans known are no worse, that is all it is asked for. As many as there are
processes are asked at a time; whenever the one asked first is done, the next is picked by what is known of all but
those still asked, so that the answer depends on their number, not their pace. The frontier is of what was planned, and
nothing that was passed over beats it by more than the gap asked for. Work grows linearly in the candidates planned; n
devices form O(log(n)^(k - 1)) meshes of k axes where n is a power of two.
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
from typing import Any

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
"""Has a candidate planned; its outcome is waited for when it is wanted. None: nobody would before time was up."""


def search_meshes(
    question: CapacityQuestion,
    *,
    processes: int = 1,
    ask: StartTask | None = None,
    time_limit_s: float | None = None,
    known: Mapping[int, CandidateResult] | None = None,
    on_outcome: Callable[[CapacitySearch, int], None] | None = None,
) -> CapacitySearch:
    """Every candidate planned or passed over, `processes` at a time: by `ask`, else in processes of this machine.
    `known`: outcomes of an earlier run, by number."""
    found, ends = CapacitySearch(question, dict(known or {})), time.monotonic() + (time_limit_s or math.inf)
    waiting = found.sort_candidates(set(found.order) - found.outcomes.keys())
    running: deque[tuple[int, Callable[[], CandidateResult]]] = deque()
    with nullcontext(ask) if ask else _start_workers(processes) as begun:
        while waiting or running:
            while waiting and len(running) < processes:
                number = waiting.pop(0)
                late = SkippedCandidate("time") if time.monotonic() > ends else None
                reason = found.find_skip_reason(number) or late
                if reason is None and (asked := begun(found.make_task(number))):
                    running.append((number, asked))
                else:
                    found.skipped[number] = reason or SkippedCandidate("time")
            if running:
                number, outcome = running.popleft()
                found.outcomes[number] = outcome()
                waiting = found.sort_candidates(waiting)
                if on_outcome is not None:
                    on_outcome(found, number)
    return found


@contextmanager
def _start_workers(processes: int) -> Iterator[StartTask]:
    if processes == 1:
        yield lambda task: partial(plan_candidate, task)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield lambda task: pool.submit(plan_candidate, task).result


def count_tokens(document: Mapping[str, Any]) -> int | None:
    """How many tokens a step takes in: the elements of the graph's first input of whole numbers, if it has one."""
    whole = (each for each in document["inputs"] if each["kind"] == "input" and each["dtype"] in ("i32", "i64"))
    return next((math.prod(each["shape"]) for each in whole), None)


def plan_candidate(task: CandidateTask) -> CandidateResult:
    """A candidate planned, without comparisons, or proven to be of no interest."""
    began = time.monotonic()
    hardware = parse_hardware(task.profile)
    graph = load_graph(GraphDocument.model_validate(task.graph), task.mesh)
    known = [] if task.start is None else [task.start]
    cutoff = None if task.cutoff_s is None else math.ceil(task.cutoff_s / PICO) + 1
    found = pipeline.solve_choice(graph, CostModel(task.mesh, hardware), task.request, known=known, cutoff=cutoff)
    solution, wall_s = found.solution, time.monotonic() - began
    if solution.reason == solvers.CUT_OFF:
        return CandidateResult(BOUNDED, None, solution.bound * PICO, None, None, None, wall_s, None)
    return CandidateResult(
        status=solution.status,
        objective_s=None if solution.cost is None else solution.cost * PICO,
        bound_s=solution.bound * PICO,
        gap=solution.gap,
        peak_bytes=None
        if solution.assignment is None
        else solvers.evaluate(found.question.problem, solution.assignment).peak,
        least_limit_bytes=solution.min_feasible_limit,
        wall_s=wall_s,
        choice=found.choice,
    )


def plan_in_full(found: CapacitySearch, number: int) -> Plan:
    """The plan of a candidate that was planned: no worse than what is known of it."""
    task, outcome = found.make_task(number), found.outcomes[number]
    graph = load_graph(GraphDocument.model_validate(task.graph), task.mesh)
    hardware = parse_hardware(task.profile)
    mesh = replace(task.mesh, device=hardware.name)
    known = [] if outcome.choice is None else [outcome.choice]
    return pipeline.plan(graph, mesh, hardware, request=task.request, known=known)
