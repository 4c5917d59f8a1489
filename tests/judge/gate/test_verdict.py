"""Two plans under limits: figures beside a plain count, terms that add up, the edit to blame, what is proven of it."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date

import pytest

from planner.documents.comparisons import regression_of
from planner.documents.gates import gate_document, is_changed
from planner.documents.schemas import PlanDocument
from planner.errors import InvalidRequest
from planner.gating import Compared, compared, question_of
from planner.judge.analysis import Analysis
from planner.judge.gate.figures import figure
from planner.judge.gate.thresholds import thresholds
from planner.judge.gate.verdict import DEARER, IN_GAPS, PROVEN, Acknowledged
from planner.judge.regression import Regression
from planner.model.program import Move, Run
from tests.testing.gate_models import base, given, model, node, planned
from tests.testing.graph_edits import Document, blocked, in_f32, pinned, resized, twice, widened

TODAY = date(2026, 6, 1)
EDITS = [blocked, in_f32, widened, twice, pinned]
EVERYTHING = "time>0ps,bytes>0B,memory>0B,time[tp]>0ps,bytes[dp]>0B,bytes[h0]>0B,time[h0]>0ps,memory[h0]>0B,gap>0%"


def regression(document: Document) -> Regression:
    found = compared(base(), given(document))
    assert found.base is not None
    assert found.new is not None
    paired = regression_of(found.base, found.new)
    assert paired is not None
    return paired


def counted(analysis: Analysis, limit: str) -> int:
    """A figure, instruction by instruction and device by device."""
    program, total = analysis.program, 0
    if limit.startswith("memory"):
        return max(int(row.max()) for row in analysis.memory)
    by_device = [0] * program.mesh.devices
    for place, done in enumerate(program.instructions):
        axis = limit.partition("[")[2].partition("]")[0]
        if axis and not (isinstance(done, Move) and program.mesh.axis(axis) in done.collective.axes):
            continue
        total += analysis.times_ps[place]
        by_device = [sum(pair) for pair in zip(by_device, map(int, analysis.received[place]), strict=True)]
    return total if limit.startswith("time") else max(by_device)


@pytest.mark.parametrize("limit", ["time>1%", "bytes>1%", "memory>1%", "time[tp]>1%", "time[dp]>1%", "bytes[tp]>1%"])
def test_a_figure_is_what_is_counted_device_by_device(limit: str) -> None:
    found = regression(pinned(model(), random.Random(5)).document)
    told = figure(found, thresholds(limit)[0])
    assert (told.base, told.new) == (counted(found.base, limit), counted(found.new, limit))
    assert sum(term.change for term in told.moved) == told.new - told.base


def test_scopes_add_up_to_the_whole() -> None:
    found = regression(model(ff=1536))
    whole = figure(found, thresholds("time>1%")[0])
    part = figure(found, thresholds("time[h0]>1%")[0])
    ops = sum(
        t for t, done in zip(found.new.times_ps, found.new.program.instructions, strict=True) if isinstance(done, Run)
    )
    assert part.new == whole.new >= ops
    with pytest.raises(InvalidRequest, match="a mesh axis \\(dp, tp\\) or a scope of the graph, such as h0"):
        figure(found, thresholds("time[h1]>1%")[0])
    with pytest.raises(InvalidRequest, match="memory is not held along a mesh axis"):
        figure(found, thresholds("memory[tp]>1%")[0])


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_what_rose_adds_up_and_is_put_down_to_the_edit(edit: object) -> None:
    draw = random.Random(3)
    edited = edit(model(dtype="bf16"), draw)  # type: ignore[operator]
    start = planned(model(dtype="bf16"))
    told = gate_document(compared(start, given(edited.document)), thresholds(EVERYTHING), [], TODAY)
    broken = [each for each in told["exceeded"] if each["measure"] != "gap"]
    assert broken
    for each in broken:
        assert sum(term["change"] for term in each["terms"]) == each["change"] > 0
        assert each["causes"][0]["name"] in edited.touched
    assert is_changed(told)


def test_an_op_of_other_sizes_is_the_same_op_edited() -> None:
    wider = resized(model(), model(ff=1536))
    told = gate_document(compared(base(), given(wider.document)), thresholds("time>0ps"), [], TODAY)
    (broken,) = told["exceeded"]
    assert {cause["name"] for cause in broken["causes"]} == wider.touched
    assert "f32[1536,256], was f32[1024,256]" in broken["causes"][0]["reason"]
    assert all(term["base"] and term["new"] for term in broken["terms"])


def test_nothing_is_planned_where_the_graphs_say_the_same() -> None:
    found = compared(base(), given(model()))
    assert found == Compared(base(), base(), True, ("the graphs say the same: nothing was planned",))
    told = gate_document(found, thresholds("time>0ps"), [], TODAY)
    assert told["same"]
    assert not is_changed(told)
    assert told["limits"][0]["change"] == 0


def test_a_base_that_a_clock_may_have_stopped_is_planned_again() -> None:
    stopped = planned(model(), deterministic=False)
    found = compared(stopped, given(model(ff=1536)))
    assert found.base is not None
    assert found.base.request.deterministic
    assert found.base.id == base().id
    assert "keep a deterministic one" in found.notes[0]


def test_a_plan_that_is_kept_is_not_made_again() -> None:
    asked: list[str] = []

    def kept(plan: str) -> PlanDocument | None:
        asked.append(plan)
        return base() if plan == base().id else None

    found = compared(given(model()), given(model(ff=1536)), question_of(base()), kept=kept)
    assert found.base is base()
    assert found.new is not None
    assert asked == [base().id, found.new.id]


def test_plans_of_different_questions_are_refused() -> None:
    other = planned(model(), memory_limit_bytes=10**9)
    with pytest.raises(InvalidRequest, match=r"another memory limit.*got 1,000,000,000 bytes; wanted 80,"):
        compared(base(), other)
    with pytest.raises(InvalidRequest, match=r"no mesh to plan on.*a mesh, or a plan as base"):
        compared(given(model()), given(model()))


def test_an_infeasible_plan_exceeds_whatever_the_limits() -> None:
    small = planned(model(), memory_limit_bytes=30_000_000)
    told = gate_document(compared(small, given(model(ff=4096))), [], [], TODAY)
    (broken,) = told["exceeded"]
    assert (broken["measure"], broken["terms"]) == ("plan", [])
    assert len(broken["causes"]) == 2
    back = gate_document(
        compared(planned(model(ff=4096), memory_limit_bytes=30_000_000), given(model())), [], [], TODAY
    )
    assert back["exceeded"] == []
    assert "the base is infeasible" in back["notes"][0]


@pytest.mark.parametrize(("bound", "wanted"), [(1.05, PROVEN), (1.02, DEARER), (0.9, IN_GAPS)])
def test_the_bounds_say_whether_the_graph_is_to_blame(bound: float, wanted: str) -> None:
    found = compared(base(), given(model(ff=1536)))
    assert found.new is not None
    objective = base().solver.objective_s
    assert objective
    solver = found.new.solver.model_copy(update={"bound_s": objective * bound})
    weaker = replace(found, new=found.new.model_copy(update={"solver": solver}))
    (broken,) = gate_document(weaker, thresholds("time>3%"), [], TODAY)["exceeded"]
    assert broken["certificate"] == wanted


# limit, days from today that it holds, whether it is then exceeded, acknowledged or unused
ANSWERS = [
    ("time>50%", 0, "acknowledged"),
    ("time>50%", -1, "exceeded"),
    ("time>0.1%", 9, "exceeded"),
    ("time[h0]>50%", 9, "exceeded"),
]


@pytest.mark.parametrize(("limit", "days", "wanted"), ANSWERS)
def test_a_rise_is_answered_for_up_to_an_amount_and_a_day(limit: str, days: int, wanted: str) -> None:
    one = Acknowledged(thresholds(limit)[0], "agreed", date.fromordinal(TODAY.toordinal() + days))
    told = gate_document(compared(base(), given(model(ff=1536))), thresholds("time>1%"), [one], TODAY)
    other = {"acknowledged": "exceeded", "exceeded": "acknowledged"}[wanted]
    assert (len(told[wanted]), len(told[other])) == (1, 0)
    expired = told[wanted][0]["acknowledgement"]
    assert (expired is not None and expired["expired"]) is (days < 0)
    assert [entry["limit"] for entry in told["unused"]] == ([] if expired else [limit])


def test_a_scope_by_another_name_is_no_change_and_limits_on_the_old_name_hold() -> None:
    document = model(ff=1536)
    for each in document["nodes"]:
        each["scope"] = "blocks.0"
    node(document, "layer_norm")["attrs"]["eps"] = 2e-5
    limits = thresholds("time[blocks]>90%,memory[blocks.0]>90%,time[h0]>1%")
    told = gate_document(compared(base(), given(document)), limits, [], TODAY)
    assert [each["limit"] for each in told["exceeded"]] == ["time[h0]>1%"]
    assert told["limits"][0]["base"] == told["limits"][2]["base"] > 0
