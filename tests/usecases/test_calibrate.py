"""A calibrated profile: every probe becomes a curve; what is not measured stays and says so."""

from __future__ import annotations

from itertools import count, pairwise

import numpy as np
import pytest

from planner.choose.hardware import parse_hardware
from planner.documents.hardware import read_profile
from planner.documents.hardware_profile import ProfileDocument
from planner.documents.schemas import validate_document
from planner.errors import InvalidRequest, RunFailed
from planner.run.calibrate import PROBES, Probe, measure_median_s, measure_ops
from planner.usecases.calibrate import calibrate_profile, select_probes

FEW = (
    Probe("matmul", "flops", lambda n: ((n, n), (n, n), (n, n)), (64, 128)),
    Probe("matmul", "bytes", lambda n: ((1, n), (n, n), (1, n)), (64, 128)),
    Probe("gelu", "bytes", lambda n: ((n,), (n,)), (256, 1024), {"approximate": "tanh"}),
)


def test_every_probe_is_an_op_in_every_size() -> None:
    for probe in PROBES:
        ops = list(probe.ops("f32"))
        assert [op.op for op, _ in ops] == [probe.op] * len(probe.sizes)
        assert all(before < after for before, after in pairwise(probe.sizes)), probe.op


def test_a_profile_is_measured_on_the_device_at_hand() -> None:
    base = read_profile("cpu")
    document = calibrate_profile(base, "here", "numpy", probes=FEW)
    hardware = parse_hardware(validate_document(ProfileDocument, document, "here").model_dump())
    assert sorted(hardware.curves) == ["gelu:tanh.f32", "matmul.f32"]
    assert hardware.curves["matmul.f32"].flops is not None
    assert hardware.links == parse_hardware(base).links
    assert "not measured" in document["sources"]["links.memory"]
    assert "matmul" not in base.get("curves", {})


def test_the_clock_measures_the_time_of_a_run() -> None:
    ticks = count()
    assert measure_median_s(lambda: None, np, lambda: float(next(ticks))) == 1.0
    found = list(measure_ops(np, "f32", FEW[:1], clock=lambda: float(next(ticks))))
    assert [each.seconds for each in found] == [1.0]  # no larger size after one that takes this long


def test_a_backend_that_is_not_there_is_named() -> None:
    with pytest.raises(RunFailed, match="unknown backend"):
        calibrate_profile(read_profile("cpu"), "here", "abacus", probes=FEW)


def test_only_the_ops_asked_for_are_measured() -> None:
    assert {probe.op for probe in select_probes(["linear", "gelu"])} == {"linear", "gelu"}
    assert select_probes([]) == list(PROBES)
    with pytest.raises(InvalidRequest, match="one of matmul, linear"):
        select_probes(["dream"])
