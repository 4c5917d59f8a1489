"""A plan of another version in a check: what the version changed is reported apart from what the edit changed."""

from __future__ import annotations

import pytest

from planner.documents.check_report import dump_check, has_changes
from planner.documents.schemas import PlanDocument
from planner.documents.versions import current_versions
from planner.judge.check.limits import parse_limits
from planner.usecases.check import ComparedPlans, compare_plans, question_from_plan
from tests.testing.check_models import Document, base, load_model, model, older_base, plan_model
from tests.testing.plan_versions import OLDER, SLOWER

LIMITS = parse_limits("time>0ps,bytes>0B,memory>0B")
OWN = ("limits", "exceeded", "totals", "terms", "changes", "options")
"""What a check says of the edit."""

# what is held against what: the older plan first, the same of this version second
SIDES = {
    "an edited graph": lambda start: compare_plans(start, load_model(model(ff=1536))),
    "the plan of an edited graph": lambda start: compare_plans(start, plan_model(model(ff=1536))),
    "as the new plan": lambda start: compare_plans(plan_model(model(ff=1536)), start),
}


def told(found: ComparedPlans) -> Document:
    return dump_check(found, LIMITS)


@pytest.mark.parametrize("what", SIDES)
def test_the_edit_is_judged_as_if_this_version_had_planned_both(what: str) -> None:
    older, current = (told(SIDES[what](start)) for start in (older_base(), base()))
    assert {key: older[key] for key in OWN} == {key: current[key] for key in OWN}
    assert current["replanned"] == []
    (entry,) = older["replanned"]
    assert entry["side"] == ("new" if what == "as the new plan" else "base")
    assert entry["reason"] == "planned by another version"
    assert entry["recorded"] == {"id": older_base().id, "versions": OLDER}
    assert entry["current"] == {"id": base().id, "versions": current_versions()}
    step = entry["totals"]["step_s"]
    assert step["base"] == pytest.approx(SLOWER * step["new"])
    assert step["change"] == step["new"] - step["base"]


def test_for_an_unchanged_graph_only_the_version_is_reported_and_nothing_is_exceeded() -> None:
    for new in (load_model(model()), base()):
        found = compare_plans(older_base(), new)
        assert found.graphs_equal
        assert found.base == base()
        assert found.base.id == base().id, "the next base is of this version"
        check = told(found)
        assert (check["exceeded"], has_changes(check)) == ([], False)
        assert check["replanned"][0]["totals"]["step_s"]["change"] < 0


def test_two_plans_of_an_older_version_are_both_planned_again() -> None:
    found = compare_plans(older_base(), older_base().model_copy(update={"id": "another"}))
    assert [each.side for each in found.replanned] == ["base", "new"]
    assert found.base == found.new == base()


def test_a_plan_of_another_version_is_not_planned_again_where_this_version_has_stored_its_own() -> None:
    asked: list[str] = []

    def kept(plan: str) -> PlanDocument | None:
        asked.append(plan)
        return base() if plan == base().id else None

    assert compare_plans(older_base(), load_model(model()), kept=kept).base is base()
    assert asked == [base().id]


def test_graphs_have_no_version() -> None:
    assert (
        compare_plans(load_model(model()), load_model(model(ff=1536)), question_from_plan(older_base())).replanned == ()
    )
