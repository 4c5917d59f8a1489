"""The interval of a step holds it, follows the residuals of what prices its ops, and widens where nothing measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import pipeline
from planner.choose.cost import PICO
from planner.choose.hardware import load_profile
from planner.choose.hardware.intervals import OUT_OF_RANGE, UNMEASURED_OP
from planner.choose.hardware.op_times import load_fits
from planner.ir.graph import Annotation
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.judge.step_interval import COLLECTIVES, UNMEASURED, StepInterval, find_interval
from planner.planning.plan_types import Request
from tests.testing.op_graph_builder import Sketch

FITTED = load_profile("h100-sxm")


def analyse_product(inner: int, *, fitted: bool = True) -> Analysis:
    """Plan the product of a 4096 x `inner` matrix on one device."""
    sketch = Sketch("bf16")
    made = sketch.op("matmul", [sketch.input(4096, inner), sketch.input(inner, 4096)], (4096, 4096))
    hardware = FITTED if fitted else replace(FITTED, op_times=None)
    plan = pipeline.plan(sketch.graph(made), Mesh.parse("1"), hardware, request=Request(deterministic=True))
    assert plan.analysis is not None
    return plan.analysis


def interval_of(analysis: Analysis) -> StepInterval:
    return find_interval(analysis, analysis.step_ps * PICO)


def ratios(interval: StepInterval) -> tuple[float, float]:
    (own,) = interval.by_class
    return interval.low_s / own.time_s, interval.high_s / own.time_s


def test_the_interval_of_one_product_is_that_of_its_class() -> None:
    interval, fit = interval_of(analyse_product(2048)), load_fits("h100-sxm")["gemm.bf16"]
    assert [each.name for each in interval.by_class] == ["gemm.bf16"]
    assert ratios(interval) == pytest.approx((fit.low, fit.high))
    assert (interval.out_of_range_s, interval.unmeasured_s) == (0, 0)


def test_outside_the_measured_shapes_the_interval_is_wider_and_says_so() -> None:
    analysis, fit = analyse_product(1 << 20), load_fits("h100-sxm")["gemm.bf16"]
    interval = interval_of(analysis)
    assert ratios(interval) == pytest.approx((fit.low / OUT_OF_RANGE, fit.high * OUT_OF_RANGE))
    assert interval.out_of_range_s == pytest.approx(analysis.step_ps * PICO)


def test_without_measurements_the_interval_is_the_judged_one() -> None:
    analysis = analyse_product(2048, fitted=False)
    interval = interval_of(analysis)
    assert [each.name for each in interval.by_class] == [UNMEASURED]
    assert ratios(interval) == pytest.approx(UNMEASURED_OP)
    assert interval.unmeasured_s == pytest.approx(analysis.step_ps * PICO)


def test_classes_add_up_to_the_step_and_are_independent_of_each_other() -> None:
    sketch = Sketch("bf16")
    split, whole = Sharding(((0,), ())), Sharding(((), ()))
    made = sketch.op("matmul", [sketch.input(4096, 4096), sketch.input(4096, 4096)], (4096, 4096))
    pins = (Annotation("i0", split, required=True), Annotation(made, whole, required=True))
    made = sketch.op("relu", [made], (4096, 4096))
    graph = sketch.graph(made, annotations=pins)
    plan = pipeline.plan(graph, Mesh.parse("4"), FITTED, request=Request(deterministic=True))
    assert plan.analysis is not None
    interval, step_s = interval_of(plan.analysis), plan.analysis.step_ps * PICO
    assert COLLECTIVES in {each.name for each in interval.by_class}
    assert sum(each.time_s for each in interval.by_class) == pytest.approx(step_s)
    assert interval.low_s < step_s < interval.high_s < sum(each.high_s for each in interval.by_class)


def test_of_a_step_with_overlap_both_ends_shrink_alike() -> None:
    analysis = analyse_product(2048)
    whole, half = interval_of(analysis), find_interval(analysis, analysis.step_ps * PICO / 2)
    assert (half.low_s, half.high_s) == pytest.approx((whole.low_s / 2, whole.high_s / 2))
