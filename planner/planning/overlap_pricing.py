"""Plans for hardware on which collectives run beside ops: `overlap` of a profile, 0 by default.

The choice problem adds up times, so it does not see what a schedule hides. With o the profile's overlap, a step takes

    serial - o (serial - scheduled)

(`planner.judge.overlap`; o = 1: ops do not suffer beside collectives). The first plan is the fastest one after the
other. Then every link is priced anew, at the share of its time that the first plan's schedule leaves exposed,
1 - o (1 - exposed), and the question is asked once more. Of both answers and the named layouts that fit, the one with
the shortest step is the plan. What is proven stays a bound on the serial sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice, Formulation
from planner.choose.hardware import Hardware
from planner.choose.hardware.network import Link
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.overlap import Overlap, assign_streams, schedule_overlap
from planner.judge.overlap_schedule import COMPUTE
from planner.judge.program_choice import encode_choice
from planner.planning import folded_solve
from planner.planning.plan_types import Plan

WriteProgram = Callable[[Formulation, Choice], Program]
MakeFormulation = Callable[[CostModel], Formulation]
INITIAL, REPRICED = "first", "the layout found with collectives priced as they are exposed"
MIN_SHARE = 1e-3
"""Of a link that is wholly hidden: it does not become free, or sending would."""


def choose_by_schedule(
    plan: Plan, question: Formulation, layouts: Mapping[str, Choice], *, ask: MakeFormulation, write: WriteProgram
) -> Plan:
    """The plan, or another that a schedule makes faster; its certificate then says which. `layouts` keep all values."""
    if plan.choice is None or plan.analysis is None or not plan.model.hardware.overlap:
        return plan
    found = {INITIAL: (plan.choice, plan.analysis)}
    known = {name: question.decode(encode_choice(question, choice)) for name, choice in layouts.items()}
    for name, choice in {**known, **_solve_exposed(plan, plan.analysis, ask)}.items():
        analysis = Analysis(write(question, choice), plan.model)
        if analysis.peak_bytes <= plan.limit_bytes:
            found[name] = choice, analysis
    times = {name: overlapped_step_ps(analysis, plan.limit_bytes) for name, (_, analysis) in found.items()}
    best = min(times, key=lambda name: times[name])
    if times[best] >= times[INITIAL]:
        return plan
    choice, analysis = found[best]
    objective = analysis.step_ps * PICO
    known_of = plan.certificate
    reason = f"{known_of.reason}; with overlap {best} takes {times[best] / times[INITIAL]:.1%} of its time"
    gap = 1 - known_of.bound_s / objective if objective else 0.0
    certificate = replace(known_of, status="feasible", objective_s=objective, gap=gap, reason=reason)
    return replace(plan, choice=choice, analysis=analysis, certificate=certificate)


def overlapped_step_ps(analysis: Analysis, limit_bytes: int) -> int:
    """A step with the overlap of the model's hardware."""
    return apply_overlap(schedule_overlap(analysis, limit_bytes), analysis.model.hardware.overlap)


def apply_overlap(found: Overlap, share: float) -> int:
    """The serial sum less a share of what the schedule gains."""
    return found.serial_ps - round(share * found.gain_ps)


def _solve_exposed(plan: Plan, analysis: Analysis, ask: MakeFormulation) -> dict[str, Choice]:
    """What the question's answer is with links priced by what is exposed; nothing where no time is left."""
    request, limit = plan.request, plan.request.time_limit_s
    left = None if limit is None else limit - plan.certificate.wall_s
    if left is not None and left <= 0:
        return {}
    shares = exposed_shares(analysis, schedule_overlap(analysis, plan.limit_bytes))
    model = CostModel(plan.model.mesh, reprice_links(plan.model.hardware, shares))
    question = ask(model)
    solution, _ = folded_solve.solve_folded(question.problem, replace(request, time_limit_s=left), [], on_progress=None)
    return {} if solution.assignment is None else {REPRICED: question.decode(solution.assignment)}


def exposed_shares(analysis: Analysis, found: Overlap) -> dict[str, float]:
    """By link, the share of the time of its collectives in which no op runs."""
    listed = assign_streams(analysis.program, analysis.model)
    if found.schedule is None:
        return {}
    starts, ends = (np.array(each, np.int64) for each in (found.schedule.starts, found.schedule.ends))
    computes = np.array([stream == COMPUTE for stream in listed], bool)
    edges = np.ravel([[0, *starts[computes]], [0, *ends[computes]]], order="F")
    busy = np.concatenate([[0], np.cumsum(np.diff(edges) * (np.arange(1, len(edges)) % 2))])
    shares = {}
    for link in dict.fromkeys(stream for stream in listed if stream != COMPUTE):
        own = np.array([stream == link for stream in listed], bool)
        total = int((ends[own] - starts[own]).sum())
        hidden = float((np.interp(ends[own], edges, busy) - np.interp(starts[own], edges, busy)).sum())
        shares[str(link)] = 1 - hidden / total if total else 1.0
    return shares


def reprice_links(hardware: Hardware, shares: Mapping[str, float]) -> Hardware:
    """The profile with every link's time times what counts of it."""
    links = {
        name: _scale_link(link, max(MIN_SHARE, 1 - hardware.overlap * (1 - shares.get(name, 1.0))))
        for name, link in hardware.links.items()
    }
    return replace(hardware, links=links)


def _scale_link(link: Link, share: float) -> Link:
    """All seconds of a link times a share: each of its figures is a time, or a time a byte."""
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
