"""Which devices a model needs: many meshes, few of them planned.

Candidates are taken in turn (`Survey.arranged`), fewest devices first. One is passed over where that is proven to lose
nothing:

    memory      some device would hold more than its limit (`planner.judge.floors`)
    infeasible  a mesh that covers it (`planner.judge.candidates`) fits no plan
    bound       a plan is known that is no worse than anything there (`planner.judge.frontier`), by the least time of
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
from planner.choose.hardware import hardware_of
from planner.documents.graphs import graph_from
from planner.documents.schemas import GraphDocument
from planner.plans import Plan
from planner.sweep import BOUNDED, Outcome, Passed, Question, Survey, Task

Ask = Callable[[Task], Callable[[], Outcome] | None]
"""Has a candidate planned; its outcome is waited for when it is wanted. None: nobody would before time was up."""


def survey(
    question: Question,
    *,
    processes: int = 1,
    ask: Ask | None = None,
    time_limit_s: float | None = None,
    known: Mapping[int, Outcome] | None = None,
    on_outcome: Callable[[Survey, int], None] | None = None,
) -> Survey:
    """Every candidate planned or passed over, `processes` at a time: by `ask`, else in processes of this machine.
    `known`: outcomes of an earlier run, by number."""
    found, ends = Survey(question, dict(known or {})), time.monotonic() + (time_limit_s or math.inf)
    waiting = found.arranged(set(found.order) - found.outcomes.keys())
    running: deque[tuple[int, Callable[[], Outcome]]] = deque()
    with nullcontext(ask) if ask else _workers(processes) as begun:
        while waiting or running:
            while waiting and len(running) < processes:
                number = waiting.pop(0)
                late = Passed("time") if time.monotonic() > ends else None
                reason = found.reason(number) or late
                if reason is None and (asked := begun(found.task(number))):
                    running.append((number, asked))
                else:
                    found.passed[number] = reason or Passed("time")
            if running:
                number, outcome = running.popleft()
                found.outcomes[number] = outcome()
                waiting = found.arranged(waiting)
                if on_outcome is not None:
                    on_outcome(found, number)
    return found


@contextmanager
def _workers(processes: int) -> Iterator[Ask]:
    if processes == 1:
        yield lambda task: partial(planned, task)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield lambda task: pool.submit(planned, task).result


def tokens(document: Mapping[str, Any]) -> int | None:
    """How many tokens a step takes in: the elements of the graph's first input of whole numbers, if it has one."""
    whole = (each for each in document["inputs"] if each["kind"] == "input" and each["dtype"] in ("i32", "i64"))
    return next((math.prod(each["shape"]) for each in whole), None)


def planned(task: Task) -> Outcome:
    """A candidate planned, without comparisons, or proven to be of no interest."""
    began = time.monotonic()
    hardware = hardware_of(task.profile)
    graph = graph_from(GraphDocument.model_validate(task.graph), task.mesh)
    known = [] if task.start is None else [task.start]
    cutoff = None if task.cutoff_s is None else math.ceil(task.cutoff_s / PICO) + 1
    found = pipeline.answer(graph, CostModel(task.mesh, hardware), task.request, known, cutoff)
    solution, wall_s = found.solution, time.monotonic() - began
    if solution.reason == solvers.CUT_OFF:
        return Outcome(BOUNDED, None, solution.bound * PICO, None, None, None, wall_s, None)
    return Outcome(
        status=solution.status,
        objective_s=None if solution.cost is None else solution.cost * PICO,
        bound_s=solution.bound * PICO,
        gap=solution.gap,
        peak_bytes=None if solution.choice is None else solvers.evaluate(found.question.problem, solution.choice).peak,
        least_limit_bytes=solution.least_limit,
        wall_s=wall_s,
        choice=found.choice,
    )


def full_plan(found: Survey, number: int) -> Plan:
    """The plan of a candidate that was planned: no worse than what is known of it."""
    task, outcome = found.task(number), found.outcomes[number]
    graph = graph_from(GraphDocument.model_validate(task.graph), task.mesh)
    hardware = hardware_of(task.profile)
    mesh = replace(task.mesh, device=hardware.name)
    known = [] if outcome.choice is None else [outcome.choice]
    return pipeline.plan(graph, mesh, hardware, task.request, known=known)
