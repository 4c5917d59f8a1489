"""Where time and memory go: groups add up, and the tensors at the peak are listed."""

from __future__ import annotations

import pytest

from planner import pipeline
from planner.choose.hardware import load_profile
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.judge.cost_breakdown import find_largest_tensors, find_slowest_ops, group_collectives, group_ops
from planner.planning.plan_types import Request
from tests.testing.explained_graphs import GRAPHS, Make


def analysed(make: Make) -> Analysis:
    plan = pipeline.plan(make(), Mesh.parse("2x2"), load_profile("cpu"), request=Request(deterministic=True))
    assert plan.analysis is not None
    return plan.analysis


@pytest.mark.parametrize("make", GRAPHS)
def test_groups_add_up_to_the_step_exactly(make: Make) -> None:
    analysis = analysed(make)
    own, moves = group_ops(analysis), group_collectives(analysis)
    assert sum(group.time_ps for group in own) == analysis.compute_ps
    assert sum(group.time_ps for group in (*own, *moves)) == analysis.step_ps
    assert sum(group.count for group in (*own, *moves)) == len(analysis.program.instructions)
    assert sum(single.time_ps for single in find_slowest_ops(analysis, 1000)) == analysis.compute_ps


@pytest.mark.parametrize("make", GRAPHS)
def test_tensors_at_the_peak_add_up_to_it(make: Make) -> None:
    analysis = analysed(make)
    listed = find_largest_tensors(analysis, 1000)
    assert sum(tensor.bytes for tensor in listed) == analysis.peak_bytes
    by_kind = {kind: sum(t.bytes for t in listed if t.kind == kind) for kind in {t.kind for t in listed}}
    assert by_kind == analysis.peak_by_kind()
    assert find_largest_tensors(analysis, 1) == listed[:1]
