"""A small model for capacity questions, and the outcomes of planning all candidates."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.frontends.zoo import import_zoo
from planner.usecases.capacity import plan_candidate
from planner.usecases.capacity_question import CandidateResult, CapacityQuestion, CapacityWorkload
from planner.usecases.capacity_search import CapacitySearch
from planner.usecases.capacity_workloads import read_workload


@cache
def small_model(batch: int) -> CapacityWorkload:
    sizes: dict[str, Any] = {"layers": 1, "heads": 4, "width": 256, "feed_forward": 512, "vocabulary": 512}
    document = import_zoo("gpt2", batch=batch, seq=64, train="sgd", **sizes)
    return read_workload(document)


def plan_all(asked: CapacityQuestion) -> dict[int, CandidateResult]:
    everything = CapacitySearch(asked)
    return {number: plan_candidate(everything.make_task(number)) for number in range(len(asked.candidates))}
