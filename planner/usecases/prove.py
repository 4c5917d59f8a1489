"""Proofs of plans: `prove_plan` writes one, `verify_plan` checks it without the solver.

Both rebuild the choice problem from the graph, mesh, hardware and request of the plan document by `formulate`. What is
proven is a bound of that problem: no assignment that fits the memory limit has a step below `bound_ps`, by the cost
model and without overlap. The plan's own step and memory are counted from its program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import solvers
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice, Formulation
from planner.choose.rematerialization import find_recomputable_ops
from planner.documents.graphs import load_mesh
from planner.documents.hardware import load_planned_hardware
from planner.documents.plan_sections import NothingDocument
from planner.documents.plans import parse_plan
from planner.documents.programs import load_program, load_step
from planner.documents.proof_sections import MAX_POTENTIALS, ProofDocument
from planner.documents.schemas import PlanDocument, validate_document
from planner.errors import InvalidDocument, InvalidRequest
from planner.judge.analysis import Analysis
from planner.judge.dual_certificate import CertificateRefused, DualCertificate, compute_bound, digest_problem
from planner.judge.program_choice import encode_choice
from planner.planning.deadline import Deadline, ProgressReporter
from planner.planning.timed_formulation import formulate_in_time

SECONDS = 30.0
"""Seconds' worth of the solver's work for the multipliers and messages of a proof."""
SECONDS_PER_PAIR = 5e-9
"""About what the last pass of messages and adding up the bound take for each pair of strategies of the problem."""


@dataclass(frozen=True, slots=True)
class Proven:
    """The step of a plan in ps, a lower bound of every plan's, and the gap between the two."""

    step_ps: int
    bound_ps: int

    @property
    def gap(self) -> float:
        return 1 - self.bound_ps / self.step_ps if self.step_ps else 0.0


def check_provable(objective: str) -> None:
    """Raise InvalidRequest for an objective other than time, of which there is no proof."""
    if objective != "time":
        raise InvalidRequest("a proof is of the step's time", got=objective, wanted="--objective time")


def prove_plan(
    raw: dict[str, Any], choice: Choice, *, seconds: float = SECONDS, report: ProgressReporter | None = None
) -> dict[str, Any]:
    """Return the proof of a plan document (a JSON object) with this choice; the same plan has the same proof.

    With a deadline (that of `report`) the search for its numbers ends in time for adding up what they prove. Raises
    TimeLimitReached where there is no time for that, and InvalidRequest for a problem whose proof is too large.
    """
    report = report or ProgressReporter(Deadline(), None)
    plan = parse_plan(raw, "plan")
    step_ps, question = _count_step(plan), _rebuild(plan, report)
    report.begin("proving")
    arrays, limit = question.problem.arrays, question.problem.limit
    if (count := int((arrays.height + arrays.width).sum())) > MAX_POTENTIALS:
        raise InvalidRequest("numbers of a proof", got=f"{count:,}", wanted=f"a problem of at most {MAX_POTENTIALS:,}")
    ends = report.deadline.sooner(SECONDS_PER_PAIR * arrays.pairs)
    ends.check()
    dual = solvers.compute_exact_dual(
        question.problem, encode_choice(question, choice), seconds=seconds, stopped=lambda: ends.left_s == 0.0
    )
    certificate = DualCertificate(dual.scale, dual.shift, dual.prices, dual.potentials)
    bound = compute_bound(arrays, limit, certificate, poll=report.deadline.check)
    return {
        "format": "shardplan.proof",
        "version": 1,
        "plan_digest": raw["digest"],
        "problem_digest": digest_problem(arrays, limit),
        "step_ps": step_ps,
        "bound_ps": bound,
        "solver_bound_ps": round(plan.solver.bound_s / PICO),
        "scale": dual.scale,
        "shift": dual.shift,
        "prices": [{"time_step": t, "price": price} for t, price in sorted(dual.prices.items())],
        "potentials": dual.potentials.tolist(),
    }


def verify_plan(
    raw: dict[str, Any], proof: Any, *, where: str = "proof", report: ProgressReporter | None = None
) -> Proven:
    """Return what a proof (a JSON value) proves of a plan document.

    Raises InvalidDocument, which says what is wrong, where the proof is damaged, of another plan or claims too much,
    and TimeLimitReached where the deadline of `report` is over before.
    """
    plan, claimed = parse_plan(raw, "plan"), validate_document(ProofDocument, proof, where)
    _require(f"{where}: plan_digest", claimed.plan_digest, raw.get("digest"))
    _require(f"{where}: step_ps", claimed.step_ps, _count_step(plan))
    _require(f"{where}: solver_bound_ps", claimed.solver_bound_ps, round(plan.solver.bound_s / PICO))
    report = report or ProgressReporter(Deadline(), None)
    problem = _rebuild(plan, report).problem
    _require(f"{where}: problem_digest", claimed.problem_digest, digest_problem(problem.arrays, problem.limit))
    prices = {entry.time_step: entry.price for entry in claimed.prices}
    if len(prices) != len(claimed.prices):
        raise InvalidDocument("a time step has two prices", where=f"{where}: prices")
    numbers = DualCertificate(claimed.scale, claimed.shift, prices, np.array(claimed.potentials, np.int64))
    try:
        bound = compute_bound(problem.arrays, problem.limit, numbers, poll=report.deadline.check)
    except CertificateRefused as refusal:
        raise InvalidDocument(str(refusal), where=where) from None
    if claimed.bound_ps > bound:
        what = "the numbers prove less than is claimed"
        raise InvalidDocument(what, where=f"{where}: bound_ps", got=claimed.bound_ps, wanted=f"at most {bound}")
    if claimed.step_ps < claimed.bound_ps:
        what, wanted = "the program is faster than any choice of its problem", f"at least {claimed.bound_ps}"
        raise InvalidDocument(what, where="plan: program", got=claimed.step_ps, wanted=wanted)
    return Proven(claimed.step_ps, claimed.bound_ps)


def _require(where: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise InvalidDocument("not the one of this plan", where=where, got=got, wanted=wanted)


def _rebuild(plan: PlanDocument, report: ProgressReporter) -> Formulation:
    """Formulate the choice problem of a plan again."""
    mesh, graph = load_mesh(plan.mesh), load_step(plan)
    late = find_recomputable_ops(graph) if plan.request.recompute == "auto" else {}
    model, limit = CostModel(mesh, load_planned_hardware(plan)), plan.request.memory_limit_bytes
    return formulate_in_time(graph, model, limit, late=late, deadline=report.deadline, report=report)


def _count_step(plan: PlanDocument) -> int:
    """Return the step in ps of a plan's program, counted again.

    Raises InvalidRequest for an objective other than time, and InvalidDocument where the program is damaged, says
    another step or needs more memory than the limit.
    """
    check_provable(plan.request.objective)
    program = load_program(plan)
    analysis = Analysis(program, CostModel(program.mesh, load_planned_hardware(plan)))
    if isinstance(plan.cost, NothingDocument) or plan.cost.step_s != analysis.step_ps * PICO:
        got = None if isinstance(plan.cost, NothingDocument) else plan.cost.step_s
        what, wanted = "not the step of the program", analysis.step_ps * PICO
        raise InvalidDocument(what, where="plan: cost.step_s", got=got, wanted=wanted)
    limit = plan.request.memory_limit_bytes
    if analysis.peak_bytes > limit:
        raise InvalidDocument("over the memory limit", where="plan: program", got=analysis.peak_bytes, wanted=limit)
    return analysis.step_ps
