"""A time limit bounds the whole command, and the answer is the best one known when the time is up."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice, Formulation, formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.integrations.common import plan_document
from planner.ir.graph import Annotation
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Sharding
from planner.judge.roofline_bounds import min_memory_bytes
from planner.pipeline import plan, start_deadline, validate_plan, write_program
from planner.planning.deadline import Deadline, PlanProgress, ProgressReporter, TimeLimitReached
from planner.planning.folded_solve import Starts
from planner.planning.last_changes import improve_result
from planner.planning.objectives import ObjectiveSolver
from planner.planning.plan_search import PlanSearch, list_levels
from planner.planning.plan_types import ObjectiveName, Plan, Request
from tests.testing.small_steps import trained

CPU = load_profile("cpu")
MESHES = ["2x2x2", "2x2x2x2"]
OBJECTIVES: list[ObjectiveName] = ["time", "bytes", "memory"]


@dataclass(frozen=True)
class EndedDeadline(Deadline):
    """A deadline that is over as soon as `over` has an entry."""

    over: list[str] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        return 1e6 if self.over else 0.0


LAYOUTS = "pricing standard layouts"


def cut_off(mesh: str, stage: str, nth: int, until: str = "", **request: Any) -> Plan:
    """Plan until a stage begins for the nth time: then the time is up, `until` a stage that has time of its own."""
    seen: list[str] = []
    deadline = EndedDeadline(20.0)

    def on_progress(now: PlanProgress) -> None:
        if not seen or seen[-1] != now.stage:
            seen.append(now.stage)
        if now.stage == stage and seen.count(stage) == nth:
            deadline.over.append(stage)
        if now.stage == until:
            deadline.over.clear()

    asked = Request(time_limit_s=20.0, **request)
    return plan(trained(mesh), Mesh.parse(mesh), CPU, request=asked, on_progress=on_progress, deadline=deadline)


def test_a_deadline_counts_from_its_start() -> None:
    past = Deadline(5.0, time.monotonic() - 10.0)
    assert past.left_s == 0.0
    with pytest.raises(TimeLimitReached):
        past.check()
    never = Deadline()
    never.check()
    assert never.left_s is None
    assert never.sooner(9.0) is never
    assert 80.0 < (Deadline(100.0).sooner(10.0).left_s or 0.0) <= 90.0


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_plan_of_joined_axes_is_the_answer_where_no_time_is_left(mesh: str, objective: ObjectiveName) -> None:
    coarse = cut_off(mesh, "writing the plan", 1, objective=objective)
    proven = coarse.certificate
    assert proven.status == "feasible"
    assert "before axes were split apart" in proven.reason
    assert not proven.reproducible
    assert coarse.analysis is not None
    assert proven.objective_s == coarse.analysis.step_ps * PICO
    assert proven.bound_s <= proven.objective_s
    assert proven.gap is not None
    assert 0 <= proven.gap < 1 or objective == "bytes"
    assert dump_plan(coarse)["solver"]["status"] == "feasible"
    if mesh == MESHES[0]:
        checked = validate_plan(coarse).verdict
        assert checked is not None
        assert checked.verdict == "equal"


def test_no_plan_of_all_axes_is_slower_than_that_of_joined_axes() -> None:
    mesh = MESHES[0]
    coarse = cut_off(mesh, "writing the plan", 1).certificate
    whole = plan(trained(mesh), Mesh.parse(mesh), CPU, request=Request(time_limit_s=60.0)).certificate
    assert whole.status == "optimal"
    assert coarse.bound_s <= whole.bound_s <= (whole.objective_s or 0.0) <= (coarse.objective_s or 0.0)


def test_the_plan_without_recomputation_is_the_answer_where_no_time_is_left_for_more() -> None:
    proven = cut_off("2x2", "pricing reshards", 2, recompute="auto").certificate
    assert proven.status == "feasible"
    assert "before recomputation" in proven.reason
    assert 0.0 < proven.bound_s <= (proven.objective_s or 0.0)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_standard_layout_is_the_answer_where_there_is_no_time_for_a_search(objective: ObjectiveName) -> None:
    answer = cut_off("2x2x2", "pricing reshards", 1, LAYOUTS, objective=objective)
    proven, figures = answer.certificate, answer.baselines
    assert (proven.status, proven.reproducible) == ("feasible", False)
    by_objective = {"time": "step_s", "bytes": "collective_bytes", "memory": "peak_bytes"}[objective]
    best = min((each for each in figures if each.fits), key=lambda each: float(getattr(each, by_objective)))
    assert proven.reason == f"time limit, before the search: {best.name}"
    assert len(figures) == 5
    assert answer.analysis is not None
    assert proven.objective_s == answer.analysis.step_ps * PICO == best.step_s
    assert 0 <= proven.bound_s <= proven.objective_s
    dump_plan(answer)
    checked = validate_plan(answer).verdict
    assert checked is not None
    assert checked.verdict == "equal"


def test_a_standard_layout_without_a_search_is_not_faster_than_in_one() -> None:
    mesh = Mesh.parse("2x2x2")
    searched = plan(trained("2x2x2"), mesh, CPU, request=Request(gap=0.5)).baselines
    alone = cut_off("2x2x2", "pricing reshards", 1, LAYOUTS).baselines
    assert [each.name for each in alone] == [each.name for each in searched]
    for first, second in zip(alone, searched, strict=True):
        assert second.step_s <= first.step_s * (1 + 1e-9) < 3 * second.step_s
        if first.collective_bytes == 0:
            assert first == second


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_where_no_standard_layout_fits_the_answer_has_what_is_proven_and_their_figures(
    objective: ObjectiveName,
) -> None:
    graph, mesh = trained("2x2x2"), Mesh.parse("2x2x2")
    least = min_memory_bytes(graph, mesh.devices, recompute=False)
    answer = cut_off("2x2x2", "pricing reshards", 1, LAYOUTS, objective=objective, memory_limit_bytes=least)
    assert answer.choice is None
    assert (answer.certificate.status, answer.certificate.reason) == ("unknown", "time limit")
    assert answer.certificate.bound_s > 0
    assert (answer.certificate.least_limit_bound_bytes or 0) > 0
    assert len(answer.baselines) == 6  # fsdp+tp is priced too where no compared layout fits
    assert not any(each.fits for each in answer.baselines)
    dump_plan(answer)


def test_a_limit_below_what_any_plan_holds_is_infeasible_without_a_search() -> None:
    graph, mesh = trained("2x2x2"), Mesh.parse("2x2x2")
    least = min_memory_bytes(graph, mesh.devices, recompute=False)
    proven = cut_off("2x2x2", "pricing reshards", 1, LAYOUTS, memory_limit_bytes=least - 1).certificate
    assert (proven.status, proven.reason) == ("infeasible", "every plan holds more than the limit")
    assert proven.least_limit_bound_bytes == least


def test_where_the_whole_time_is_up_one_layout_is_priced() -> None:
    ended = EndedDeadline(1.0, over=["now"])
    answer = plan(trained("2x2x2"), Mesh.parse("2x2x2"), CPU, request=Request(time_limit_s=1.0), deadline=ended)
    assert [each.name for each in answer.baselines] == ["FSDP"]


def test_pins_and_deterministic_requests_are_searched_in_one_level() -> None:
    graph, mesh, limited = trained("2x2x2"), Mesh.parse("2x2x2"), Request(time_limit_s=1.0)
    whole = AxisUnits.of(mesh)
    pinned = replace(graph, annotations=(Annotation(graph.inputs[0].id, Sharding(()), required=True),))
    assert list_levels(graph, mesh, limited) == [whole.join(mesh, 2), whole]
    assert list_levels(graph, mesh, replace(limited, deterministic=True)) == [whole]
    assert list_levels(pinned, mesh, limited) == [whole]
    assert list_levels(graph, mesh, Request()) == [whole]
    assert len(list_levels(trained("2x2x2x2"), Mesh.parse("2x2x2x2"), Request())) == 2


@pytest.mark.parametrize("share", [1.0, 0.8, 0.6])
def test_recomputation_never_makes_a_plan_slower(share: float) -> None:
    graph, mesh = trained("2x2"), Mesh.parse("2x2")
    analysis = plan(graph, mesh, CPU).analysis
    assert analysis is not None
    asked = Request(memory_limit_bytes=int(share * analysis.peak_bytes), gap=0.05)
    kept, recomputed = (
        plan(graph, mesh, CPU, request=replace(asked, recompute=mode)).certificate for mode in ("none", "auto")
    )
    if kept.objective_s is not None:
        assert recomputed.objective_s is not None
        assert recomputed.objective_s <= kept.objective_s


def test_recomputation_never_needs_more_memory_than_is_sufficient_without() -> None:
    document, mesh = import_zoo("gpt2", batch=4, seq=64, layers=1, width=64, heads=4, train="adam"), Mesh.parse("2x2")
    graph = load_graph(validate_document(GraphDocument, document, "graph"), mesh)
    kept, recomputed = (
        plan(graph, mesh, CPU, request=Request(1000, recompute=mode)).certificate for mode in ("none", "auto")
    )
    assert (kept.status, recomputed.status) == ("infeasible", "infeasible")
    assert (recomputed.least_limit_bytes or 1 << 60) <= (kept.least_limit_bytes or 0)


def test_a_framework_is_told_that_the_time_was_up_and_not_that_nothing_fits() -> None:
    document, mesh = import_zoo("gpt2", batch=4, seq=8, layers=1), Mesh.parse("2")
    graph = load_graph(validate_document(GraphDocument, document, "graph"), mesh)
    least = min_memory_bytes(graph, mesh.devices, recompute=False)
    with pytest.raises(InvalidRequest, match=r"gpt2: no plan found \(got time limit; wanted a longer time limit\)"):
        plan_document(document, "gpt2", mesh, device="cpu", request=Request(least, time_limit_s=1e-6))
    with pytest.raises(InvalidRequest, match="gpt2: no plan fits"):
        plan_document(document, "gpt2", mesh, device="cpu", request=Request(least - 1, time_limit_s=1e-6))


def test_a_plan_whose_run_does_not_end_in_time_has_no_verdict() -> None:
    found = plan(trained("2x2"), Mesh.parse("2x2"), CPU, request=Request(gap=0.5))
    assert validate_plan(found, deadline=Deadline(0.0)) == found
    in_time = validate_plan(found, deadline=Deadline(None)).verdict
    assert in_time is not None
    assert in_time.verdict == "equal"


def test_layouts_that_there_was_no_time_to_price_before_the_search_are_priced_after_it() -> None:
    asked = Request(time_limit_s=60.0, gap=0.5)
    names = [each.name for each in plan(trained("2x2"), Mesh.parse("2x2"), CPU, request=asked).baselines]
    late: list[str] = []
    deadline = EndedDeadline(60.0, over=late)

    def note_stage(state: PlanProgress) -> None:
        late.clear()
        if state.stage == "pricing standard layouts":
            late.append(state.stage)

    found = plan(trained("2x2"), Mesh.parse("2x2"), CPU, request=asked, on_progress=note_stage, deadline=deadline)
    assert [each.name for each in found.baselines] == names


def test_a_command_that_began_earlier_has_so_much_less_time() -> None:
    began_s = time.monotonic() - 10.0
    assert start_deadline(Request(time_limit_s=5.0), began_s).left_s == 0.0
    assert 29.0 < (start_deadline(Request(time_limit_s=40.0), began_s).left_s or 0.0) <= 30.0
    assert start_deadline(Request(time_limit_s=5.0, deterministic=True), began_s).left_s is None


def test_no_last_change_is_tried_where_the_time_is_up() -> None:
    graph, mesh = trained("2x2"), Mesh.parse("2x2")
    asked = Request(time_limit_s=60.0, gap=0.0)
    search = PlanSearch(
        graph, CostModel(mesh, CPU), asked, Deadline(), ProgressReporter(Deadline(), None), AxisUnits.of(mesh)
    )
    found = search.find_choice(())
    open_gap = replace(found, solution=replace(found.solution, status="feasible"))
    written: list[object] = []

    def write(question: Formulation, choice: Choice) -> Program:
        written.append(choice)
        return write_program(question, choice)

    assert improve_result(open_gap, asked, write=write, limit=1 << 40, deadline=Deadline(0.0)) is open_gap
    assert not written
    improve_result(open_gap, asked, write=write, limit=1 << 40, deadline=Deadline())
    assert written


def test_the_solver_is_given_the_time_that_is_left_after_its_starts_are_encoded() -> None:
    graph, mesh, late = trained("2x2"), Mesh.parse("2x2"), list[str]()
    deadline = EndedDeadline(60.0, over=late)

    def make_starts(_question: Formulation) -> Starts:
        late.append("starts encoded")
        return []

    solver = ObjectiveSolver(
        lambda priced, most: formulate(graph, priced, most),
        make_starts,
        write_program,
        CostModel(mesh, CPU),
        1 << 40,
        Request(time_limit_s=60.0, gap=0.0),
        deadline,
        ProgressReporter(deadline, None),
    )
    found = solver.solve()
    assert found.choice is not None
    assert not found.solution.reproducible
