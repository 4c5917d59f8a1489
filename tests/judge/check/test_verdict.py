"""Two plans under limits: figures equal a plain count, terms add up, causes name the edit, certificates are proven."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date

import pytest

from planner.documents.check_report import dump_check, has_changes
from planner.documents.diff import load_regression
from planner.documents.schemas import PlanDocument
from planner.errors import InvalidRequest
from planner.ir.accounting import count_live_bytes, count_received_bytes
from planner.ir.program import OpCall, Reshard
from planner.judge.analysis import Analysis
from planner.judge.check.limits import parse_limits
from planner.judge.check.measures import measure_change
from planner.judge.check.verdict import DEARER, IN_GAPS, PROVEN, Waiver
from planner.judge.diff import PlanDiff
from planner.usecases.check import ComparedPlans, compare_plans, question_from_plan
from tests.testing.check_models import base, load_model, model, node, plan_model
from tests.testing.graph_edits import Document, blocked, in_f32, pinned, resized, twice, widened

TODAY = date(2026, 6, 1)
EDITS = [blocked, in_f32, widened, twice, pinned]
EVERYTHING = "time>0ps,bytes>0B,memory>0B,time[tp]>0ps,bytes[dp]>0B,bytes[h0]>0B,time[h0]>0ps,memory[h0]>0B,gap>0%"


def regression(document: Document) -> PlanDiff:
    found = compare_plans(base(), load_model(document))
    assert found.base is not None
    assert found.new is not None
    paired = load_regression(found.base, found.new)
    assert paired is not None
    return paired


def counted(analysis: Analysis, limit: str) -> int:
    """A figure, instruction by instruction and device by device."""
    program, total = analysis.program, 0
    if limit.startswith("memory"):
        return max(int(row.max()) for row in count_live_bytes(program))
    received = count_received_bytes(program)
    by_device = [0] * program.mesh.devices
    for place, done in enumerate(program.instructions):
        axis = limit.partition("[")[2].partition("]")[0]
        if axis and not (isinstance(done, Reshard) and program.mesh.axis(axis) in done.collective.axes):
            continue
        total += analysis.times_ps[place]
        by_device = [sum(pair) for pair in zip(by_device, map(int, received[place]), strict=True)]
    return total if limit.startswith("time") else max(by_device)


@pytest.mark.parametrize("limit", ["time>1%", "bytes>1%", "memory>1%", "time[tp]>1%", "time[dp]>1%", "bytes[tp]>1%"])
def test_a_figure_equals_the_count_device_by_device(limit: str) -> None:
    found = regression(pinned(model(), random.Random(5)).document)
    told = measure_change(found, parse_limits(limit)[0])
    assert (told.base, told.new) == (counted(found.base.parts[0], limit), counted(found.new.parts[0], limit))
    assert sum(term.change for term in told.changed_terms) == told.new - told.base


def test_scopes_add_up_to_the_whole() -> None:
    found = regression(model(ff=1536))
    whole = measure_change(found, parse_limits("time>1%")[0])
    part = measure_change(found, parse_limits("time[h0]>1%")[0])
    (new,) = found.new.parts
    pairs = zip(new.times_ps, new.program.instructions, strict=True)
    ops = sum(time for time, done in pairs if isinstance(done, OpCall))
    assert part.new == whole.new >= ops
    with pytest.raises(InvalidRequest, match="a mesh axis \\(dp, tp\\) or a scope of the graph, such as h0"):
        measure_change(found, parse_limits("time[h1]>1%")[0])
    with pytest.raises(InvalidRequest, match="memory is not held along a mesh axis"):
        measure_change(found, parse_limits("memory[tp]>1%")[0])


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_rises_add_up_and_are_attributed_to_the_edit(edit: object) -> None:
    draw = random.Random(3)
    edited = edit(model(dtype="bf16"), draw)  # type: ignore[operator]
    start = plan_model(model(dtype="bf16"))
    told = dump_check(compare_plans(start, load_model(edited.document)), parse_limits(EVERYTHING), [], today=TODAY)
    broken = [each for each in told["exceeded"] if each["measure"] != "gap"]
    assert broken
    for each in broken:
        assert sum(term["change"] for term in each["terms"]) == each["change"] > 0
        assert each["causes"][0]["name"] in edited.touched
    assert has_changes(told)


def test_an_op_of_other_sizes_is_the_same_op_edited() -> None:
    wider = resized(model(), model(ff=1536))
    told = dump_check(compare_plans(base(), load_model(wider.document)), parse_limits("time>0ps"), [], today=TODAY)
    (broken,) = told["exceeded"]
    assert {cause["name"] for cause in broken["causes"]} == wider.touched
    assert "f32[1536,256], was f32[1024,256]" in broken["causes"][0]["reason"]
    assert all(term["base"] and term["new"] for term in broken["terms"])


def test_nothing_is_planned_where_the_graphs_are_equal() -> None:
    found = compare_plans(base(), load_model(model()))
    assert found == ComparedPlans(base(), base(), True, ("the graphs are equal: nothing was planned",))
    told = dump_check(found, parse_limits("time>0ps"), [], today=TODAY)
    assert told["graphs_equal"]
    assert not has_changes(told)
    assert told["limits"][0]["change"] == 0


def test_a_base_that_a_clock_may_have_stopped_is_planned_again() -> None:
    stopped = plan_model(model(), deterministic=False)
    found = compare_plans(stopped, load_model(model(ff=1536)))
    assert found.base is not None
    assert found.base.request.deterministic
    assert found.base.id == base().id
    assert "a deterministic plan is not planned again" in found.notes[0]


def test_a_stored_plan_is_not_planned_again() -> None:
    asked: list[str] = []

    def kept(plan: str) -> PlanDocument | None:
        asked.append(plan)
        return base() if plan == base().id else None

    found = compare_plans(load_model(model()), load_model(model(ff=1536)), question_from_plan(base()), kept=kept)
    assert found.base is base()
    assert found.new is not None
    assert asked == [base().id, found.new.id]


def test_plans_of_different_questions_are_refused() -> None:
    other = plan_model(model(), memory_limit_bytes=10**9)
    with pytest.raises(InvalidRequest, match=r"another memory limit.*got 1,000,000,000 bytes; wanted 80,"):
        compare_plans(base(), other)
    with pytest.raises(InvalidRequest, match=r"no mesh to plan on.*a mesh, or a plan as base"):
        compare_plans(load_model(model()), load_model(model()))


def test_an_infeasible_plan_exceeds_whatever_the_limits() -> None:
    small = plan_model(model(), memory_limit_bytes=30_000_000)
    told = dump_check(compare_plans(small, load_model(model(ff=4096))), [], [], today=TODAY)
    (broken,) = told["exceeded"]
    assert (broken["measure"], broken["terms"]) == ("plan", [])
    assert len(broken["causes"]) == 2
    back = dump_check(
        compare_plans(plan_model(model(ff=4096), memory_limit_bytes=30_000_000), load_model(model())),
        [],
        [],
        today=TODAY,
    )
    assert back["exceeded"] == []
    assert "the base is infeasible" in back["notes"][0]


@pytest.mark.parametrize(("bound", "wanted"), [(1.05, PROVEN), (1.02, DEARER), (0.9, IN_GAPS)])
def test_the_bounds_say_whether_the_graph_is_to_blame(bound: float, wanted: str) -> None:
    found = compare_plans(base(), load_model(model(ff=1536)))
    assert found.new is not None
    objective = base().solver.objective_s
    assert objective
    solver = found.new.solver.model_copy(update={"bound_s": objective * bound})
    weaker = replace(found, new=found.new.model_copy(update={"solver": solver}))
    (broken,) = dump_check(weaker, parse_limits("time>3%"), [], today=TODAY)["exceeded"]
    assert broken["certificate"] == wanted


# limit, days from today that it holds, whether it is then exceeded, waived or unused
ANSWERS = [
    ("time>50%", 0, "waived"),
    ("time>50%", -1, "exceeded"),
    ("time>0.1%", 9, "exceeded"),
    ("time[h0]>50%", 9, "exceeded"),
]


@pytest.mark.parametrize(("limit", "days", "wanted"), ANSWERS)
def test_a_waiver_covers_a_rise_up_to_an_amount_and_a_date(limit: str, days: int, wanted: str) -> None:
    one = Waiver(parse_limits(limit)[0], "agreed", date.fromordinal(TODAY.toordinal() + days))
    told = dump_check(compare_plans(base(), load_model(model(ff=1536))), parse_limits("time>1%"), [one], today=TODAY)
    other = {"waived": "exceeded", "exceeded": "waived"}[wanted]
    assert (len(told[wanted]), len(told[other])) == (1, 0)
    expired = told[wanted][0]["waiver"]
    assert (expired is not None and expired["expired"]) is (days < 0)
    assert [entry["limit"] for entry in told["unused_waivers"]] == ([] if expired else [limit])


def test_a_scope_by_another_name_is_no_change_and_limits_on_the_old_name_hold() -> None:
    document = model(ff=1536)
    for each in document["nodes"]:
        each["scope"] = "blocks.0"
    node(document, "layer_norm")["attrs"]["eps"] = 2e-5
    limits = parse_limits("time[blocks]>90%,memory[blocks.0]>90%,time[h0]>1%")
    told = dump_check(compare_plans(base(), load_model(document)), limits, [], today=TODAY)
    assert [each["limit"] for each in told["exceeded"]] == ["time[h0]>1%"]
    assert told["limits"][0]["base"] == told["limits"][2]["base"] > 0
