"""A plan says how its repeated layers were used, and its proof is that of the unfolded problem."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import solvers
from planner import Request
from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import load_profile
from planner.documents.canonical_json import canonical_json
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan
from planner.documents.schemas import GraphDocument, PlanDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.pipeline import plan, solve_choice
from planner.planning.deadline import PlanProgress
from planner.planning.plan_types import Plan
from tests.testing.graphs import small_transformer

LAYERS, MESH = 8, Mesh.parse("2")
REQUESTS = [Request(gap=0.01, deterministic=True), Request(gap=0.01, time_limit_s=30)]


@cache
def trained() -> Graph:
    """A training step of eight layers."""
    written = import_zoo(
        "llama-7b",
        batch=8,
        seq=8,
        train="adam",
        layers=LAYERS,
        width=16,
        heads=2,
        kv_heads=1,
        feed_forward=32,
        vocabulary=24,
    )
    return load_graph(validate_document(GraphDocument, written, "llama"), MESH)


@cache
def planned(request: Request) -> tuple[Plan, tuple[PlanProgress, ...]]:
    """Its plan, and what was told on the way."""
    told: list[PlanProgress] = []
    return plan(trained(), MESH, load_profile("cpu"), request=request, on_progress=told.append), tuple(told)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_the_loss_bound_of_folding_is_reported(request_: Request) -> None:
    certificate = planned(request_)[0].certificate
    folding = certificate.folding
    assert folding is not None
    assert folding.layers == (LAYERS,)
    assert folding.groups < folding.variables < folding.total_variables / 2
    assert folding.loss_bound is not None
    assert certificate.gap is not None
    assert certificate.gap <= min(folding.loss_bound, 0.01)
    assert folding.unfolded == (certificate.gap < folding.loss_bound)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_the_program_costs_what_was_proven(request_: Request) -> None:
    done = planned(request_)[0]
    assert done.analysis is not None
    assert done.certificate.objective_s == done.analysis.step_ps * PICO
    assert done.analysis.peak_bytes <= done.limit_bytes


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_progress_goes_forward_and_shows_no_bound_of_the_folded_problem(request_: Request) -> None:
    done, told = planned(request_)
    costs = [now.incumbent for now in told if now.incumbent is not None]
    assert [now.elapsed_s for now in told] == sorted(now.elapsed_s for now in told)
    assert [now.bound for now in told] == sorted(now.bound for now in told)
    assert told[0].bound == 0
    assert next(now.stage for now in told) == "finding standard layouts"
    assert told[-1].stage == "writing the plan"
    assert min(costs) * PICO == done.certificate.objective_s


def test_a_plan_document_describes_folding_and_fits_its_schema() -> None:
    document = dump_plan(planned(REQUESTS[0])[0])
    assert document["solver"]["folding"]["layers"] == [LAYERS]
    PlanDocument.model_validate(document)


@pytest.mark.slow
def test_folding_is_the_same_every_time() -> None:
    first = canonical_json(dump_plan(planned(REQUESTS[0])[0]))
    planned.cache_clear()
    assert canonical_json(dump_plan(planned(REQUESTS[0])[0])) == first


def test_a_cutoff_is_proven_without_folding_and_changes_no_cheaper_plan() -> None:
    model, certificate = CostModel(MESH, load_profile("cpu")), planned(REQUESTS[0])[0].certificate
    least, most = (round(seconds / PICO) for seconds in (certificate.bound_s, certificate.objective_s or 0.0))
    below, above = (
        solve_choice(trained(), model, REQUESTS[0], cutoff=cutoff) for cutoff in (least - least // 50, 2 * most)
    )
    assert (below.solution.reason, below.folding) == (solvers.CUT_OFF, None)
    assert above.folding is not None
    assert above.solution.status == "optimal"
    assert above.solution.bound <= most
    assert least <= (above.solution.cost or 0)


def test_a_small_problem_is_not_folded() -> None:
    done = plan(small_transformer(MESH, blocks=2), MESH, load_profile("cpu"))
    assert done.certificate.folding is None
    assert dump_plan(done)["solver"]["folding"] is None


def test_a_folded_problem_takes_no_longer_than_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, solve = list[float](), solvers.solve

    def note_limit(problem: solvers.Problem, **options: Any) -> solvers.Solution:
        limits.append(options["time_limit"])
        return solve(problem, **options)

    monkeypatch.setattr(solvers, "solve", note_limit)
    for limit_s in (20.0, 2000.0):
        plan(trained(), MESH, load_profile("cpu"), request=Request(gap=0.01, time_limit_s=limit_s, deterministic=True))
    (short, _), (long, rest) = limits[:2], limits[2:]
    assert short == long < 0.2 * 20.0
    assert rest > 1000.0
