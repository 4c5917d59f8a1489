"""The figures of a candidate, in the units that their names say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.documents.hardware import read_profile
from planner.errors import InvalidRequest
from planner.judge.mesh_candidates import enumerate_candidates
from planner.planning.plan_types import Request
from planner.usecases.capacity_figures import TokenFigures, token_figures
from planner.usecases.capacity_question import CapacityQuestion, CapacityWorkload, HardwareOffer
from planner.usecases.capacity_search import CapacitySearch
from planner.usecases.capacity_workloads import list_pass_batches, zoo_workloads

DEVICES, TOKENS, BATCH = 8, 4000, 4
# global batch, micro-batches
PASSES = [(1, [1]), (24, [24, 12, 6, 3]), (7, [7]), (1 << 20, [1 << k for k in range(20, 13, -1)])]


def search(price: float | None = 2.0, hardware: str = "h100-sxm", **asked: object) -> CapacitySearch:
    workload = CapacityWorkload({"name": "nothing", "inputs": []}, TOKENS, BATCH)
    question = CapacityQuestion(
        (workload,),
        (HardwareOffer(read_profile(hardware), price),),
        enumerate_candidates(1, 1, (DEVICES,), axes=1),
        Request(),
    )
    return CapacitySearch(replace(question, **asked))  # type: ignore[arg-type]


def test_figures_have_the_units_that_their_names_say() -> None:
    figures = token_figures(search(run_tokens=1e9), 0, step_s=0.5)
    assert figures.tokens_per_s == 8000
    assert figures.tokens_per_device_s == 1000
    assert figures.device_hours_per_million_tokens == pytest.approx(1000 / 3600)
    assert figures.cost_per_million_tokens == pytest.approx(2 * 1000 / 3600)
    assert figures.energy_kwh_per_million_tokens == pytest.approx(1000 * 700 / 3.6e6)
    assert figures.run_days == pytest.approx(1e9 / 8000 / 86400)
    assert figures.run_device_hours == pytest.approx(1e6 / 3600)
    assert figures.run_cost == pytest.approx(2e6 / 3600)
    assert figures.run_energy_kwh == pytest.approx(1e6 * 700 / 3.6e6)


def test_what_is_not_known_has_no_figure() -> None:
    figures = token_figures(search(price=None, hardware="tpu-v5p"), 0, step_s=0.5)
    assert figures.tokens_per_device_s == 1000
    unknown = ("cost_per_million_tokens", "energy_kwh_per_million_tokens", "run_days", "run_cost", "run_energy_kwh")
    assert all(getattr(figures, name) is None for name in unknown)
    tokenless = search(graphs=(CapacityWorkload({"name": "nothing", "inputs": []}, None),))
    assert token_figures(tokenless, 0, step_s=0.5) == TokenFigures()


@pytest.mark.parametrize("passes", [1, 3])
def test_a_step_has_the_tokens_of_all_its_micro_batches(passes: int) -> None:
    asked = search(request=Request(global_batch=passes * BATCH))
    assert asked.question.count_microbatches(asked.question.graphs[0]) == passes
    assert token_figures(asked, 0, step_s=0.5).tokens_per_s == passes * TOKENS / 0.5
    point = asked.question.point(asked.question.candidates[0], 0.5)
    assert point.time_s == pytest.approx(0.5 / (passes * TOKENS))


@pytest.mark.parametrize(("whole", "batches"), PASSES)
def test_passes_divide_the_global_batch(whole: int, batches: list[int]) -> None:
    assert list_pass_batches(whole) == batches


def test_a_model_is_asked_for_in_every_batch_and_length() -> None:
    sizes = {"layers": 1, "width": 64, "heads": 4, "feed_forward": 64, "vocabulary": 64, "train": "sgd"}
    found = list(zoo_workloads("gpt2", batches=[2, 4], seqs=[8, None], **sizes))
    assert [(one.batch, one.tokens) for one in found] == [(2, 16), (2, 2048), (4, 32), (4, 4096)]


@pytest.mark.parametrize(
    "asked", [{"run_tokens": -1.0}, {"run_tokens": float("nan")}, {"request": Request(global_batch=BATCH + 1)}]
)
def test_runs_and_batches_that_do_not_fit_are_refused(asked: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        search(**asked)  # type: ignore[arg-type]
