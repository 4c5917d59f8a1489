"""Plans for hardware on which collectives overlap with ops: `overlap` of a profile, 0 by default.

The assignment problem adds up times, so it does not see what a schedule hides. With o the profile's overlap, a step
takes

    serial - o (serial - scheduled)

(`planner.judge.overlap`). The first plan is the fastest without overlap. Then the time of each link is multiplied by
1 - o (1 - exposed), with `exposed` the share of its time that the first plan's schedule does not hide, or pays for by
slower ops, and the problem is solved again. The plan is the one with the shortest step among both results
and the named choices that fit, of standard layouts for example. The proven bound remains one on the serial sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice, Formulation
from planner.choose.hardware import Hardware
from planner.choose.hardware.network import Link
from planner.errors import InvalidRequest
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.overlap import Overlap, assign_streams, schedule_overlap, slowdown_of
from planner.judge.overlap_schedule import COMPUTE
from planner.judge.program_choice import encode_choice
from planner.planning import folded_solve
from planner.planning.deadline import ProgressReporter, TimeLimitReached
from planner.planning.plan_types import Plan

WriteProgram = Callable[[Formulation, Choice], Program]
MakeFormulation = Callable[[CostModel], Formulation]
INITIAL, REPRICED = "first", "the layout found with collectives priced as they are exposed"
MIN_SHARE = 1e-3
"""Least factor on the time of a link, even of one that is wholly hidden: otherwise sending would be free."""


def choose_by_schedule(
    plan: Plan,
    question: Formulation,
    compared: Mapping[str, Choice],
    *,
    ask: MakeFormulation,
    write: WriteProgram,
    report: ProgressReporter,
) -> Plan:
    """Return the plan, or another one that overlap makes faster, as its certificate then says.

    compared  named choices, of which those that the question does not offer are left out
    ask       cost model -> formulation of the same request
    """
    if plan.choice is None or plan.analysis is None or not plan.model.hardware.overlap:
        return plan
    candidates = {INITIAL: (plan.choice, plan.analysis)}
    named = _list_offered(question, compared)
    for name, choice in {**named, **_solve_exposed(plan, plan.analysis, ask, report=report)}.items():
        analysis = Analysis(write(question, choice), plan.model)
        if analysis.peak_bytes <= plan.limit_bytes:
            candidates[name] = choice, analysis
    times = {name: overlapped_step_ps(analysis, plan.limit_bytes) for name, (_, analysis) in candidates.items()}
    best = min(times, key=lambda name: times[name])
    if times[best] >= times[INITIAL]:
        return plan
    choice, analysis = candidates[best]
    objective = analysis.step_ps * PICO
    proven = plan.certificate
    reason = f"{proven.reason}; with overlap {best} takes {times[best] / times[INITIAL]:.1%} of its time"
    gap = 1 - proven.bound_s / objective if objective else 0.0
    certificate = replace(proven, status="feasible", objective_s=objective, gap=gap, reason=reason)
    return replace(plan, choice=choice, analysis=analysis, certificate=certificate)


def _list_offered(question: Formulation, compared: Mapping[str, Choice]) -> dict[str, Choice]:
    """Return the choices that a question offers, as it has them."""
    offered = {}
    for name, choice in compared.items():
        with suppress(InvalidRequest):
            offered[name] = question.decode(encode_choice(question, choice))
    return offered


def overlapped_step_ps(analysis: Analysis, limit_bytes: int) -> int:
    """Return the time of a step in ps with the overlap of the model's hardware."""
    return apply_overlap(schedule_overlap(analysis, limit_bytes), analysis.model.hardware.overlap)


def apply_overlap(overlap: Overlap, share: float) -> int:
    """Return the serial time less a share of what the schedule gains, in ps."""
    return overlap.serial_ps - round(share * overlap.gain_ps)


def _solve_exposed(
    plan: Plan, analysis: Analysis, ask: MakeFormulation, *, report: ProgressReporter
) -> dict[str, Choice]:
    """Solve again with links priced by their exposed time; empty where no time is left or nothing fits."""
    report.begin("searching with collectives priced as they are exposed")
    shares = exposed_shares(analysis, schedule_overlap(analysis, plan.limit_bytes))
    model = CostModel(plan.model.mesh, reprice_links(plan.model.hardware, shares))
    try:
        question = ask(model)
    except TimeLimitReached:
        return {}
    left = plan.request.time_limit_s if plan.request.deterministic else report.deadline.left_s
    if left == 0:
        return {}
    request = replace(plan.request, time_limit_s=left)
    quiet = report.report_time
    solution, _ = folded_solve.solve_folded(question.problem, request, [], on_progress=quiet, on_folded=quiet)
    return {} if solution.assignment is None else {REPRICED: question.decode(solution.assignment)}


def exposed_shares(analysis: Analysis, overlap: Overlap) -> dict[str, float]:
    """Return by link the share of the time of its collectives that the step pays: exposed, or in slower ops."""
    listed = assign_streams(analysis.program, analysis.model)
    if overlap.schedule is None:
        return {}
    starts, ends = (np.array(each, np.int64) for each in (overlap.schedule.starts, overlap.schedule.ends))
    computes = np.array([stream == COMPUTE for stream in listed], bool)
    # `busy` is the time that ops have run by each edge; between edges it is linear, so interp() integrates exactly.
    edges = np.ravel([[0, *starts[computes]], [0, *ends[computes]]], order="F")
    busy = np.concatenate([[0], np.cumsum(np.diff(edges) * (np.arange(1, len(edges)) % 2))])
    shares = {}
    for link in dict.fromkeys(stream for stream in listed if stream != COMPUTE):
        own = np.array([stream == link for stream in listed], bool)
        alone = sum(time for time, stream in zip(analysis.times_ps, listed, strict=True) if stream == link)
        hidden = float((np.interp(ends[own], edges, busy) - np.interp(starts[own], edges, busy)).sum())
        lost = 1 - 1 / slowdown_of(analysis.model.hardware, COMPUTE, [COMPUTE, link])
        paid = int((ends[own] - starts[own]).sum()) - hidden * (1 - lost)
        shares[str(link)] = min(1.0, paid / alone) if alone else 1.0
    return shares


def reprice_links(hardware: Hardware, shares: Mapping[str, float]) -> Hardware:
    """Return the profile with the time of each link scaled by its exposed share."""
    links = {
        name: _scale_link(link, max(MIN_SHARE, 1 - hardware.overlap * (1 - shares.get(name, 1.0))))
        for name, link in hardware.links.items()
    }
    return replace(hardware, links=links)


def _scale_link(link: Link, share: float) -> Link:
    """Scale every time of a link. Each of its figures is a time, or a rate, which is divided."""
    switch = link.switch and replace(link.switch, fill_s=link.switch.fill_s * share)
    return replace(
        link,
        latency_s=link.latency_s * share,
        bandwidth=link.bandwidth / share,
        step_s=link.step_s * share,
        level_s=None if link.level_s is None else link.level_s * share,
        fill_s=link.fill_s * share,
        switch=switch,
    )
