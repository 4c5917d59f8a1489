"""Times of kernels on devices that were not measured."""

from __future__ import annotations

import numpy as np
import pytest

from planner.choose.hardware import load_profile
from planner.choose.hardware.efficiency import PRODUCT as PRODUCT_KIND
from planner.choose.hardware.intervals import UNMEASURED_DEVICE
from planner.choose.hardware.op_classes import OP_CLASSES
from planner.choose.hardware.op_rates import find_rates
from planner.choose.hardware.op_times import load_fits
from planner.choose.hardware.op_transfer import ANCHOR, find_kernels
from planner.errors import InvalidRequest

BYTES = np.array([1e5, 1e7, 1e9])
GROUP = {"bytes": BYTES, "devices": np.full(3, 8.0)}
PRODUCT = {"m": np.array([4096.0]), "n": np.array([8192.0]), "k": np.array([4096.0])}


def test_a_measured_device_has_its_own_times() -> None:
    found, key = find_kernels(load_profile("h100-sxm"), "all_gather", "nccl"), "all_gather.nccl"
    rates = find_rates(load_profile("h100-sxm"), key)
    own = load_fits("h100-sxm")[key].seconds(OP_CLASSES["all_gather"], rates, GROUP)
    assert (found.device, found.is_own) == ("h100-sxm", True)
    assert found.seconds(GROUP).tolist() == own.tolist()


def test_a_collective_whose_bytes_take_as_long_takes_as_long_on_another_device() -> None:
    here, there = (find_rates(load_profile(name), "all_gather.nccl").bandwidth for name in ("gb200", "h100-sxm"))
    faster = find_kernels(load_profile("gb200"), "all_gather", "nccl", among=["h100-sxm"])
    measured = find_kernels(load_profile("h100-sxm"), "all_gather", "nccl").seconds(GROUP)
    assert faster.seconds({**GROUP, "bytes": BYTES * here / there}) == pytest.approx(measured)


def test_several_devices_are_averaged_and_the_nearest_is_named() -> None:
    one, two, both = (
        find_kernels(load_profile("b300-sxm"), "gemm", "bf16", among=among)
        for among in (["h100-sxm"], ["h200-sxm"], ["h100-sxm", "h200-sxm"])
    )
    times = [each.seconds(PRODUCT)[0] for each in (one, both, two)]
    assert times in (sorted(times), sorted(times, reverse=True))
    assert both.device == "h200-sxm"


def test_a_device_that_was_not_measured_has_the_wider_interval_of_the_nearest() -> None:
    fit, (low, high) = load_fits("h200-sxm")["gemm.bf16"], find_kernels(load_profile("gb300"), "gemm", "bf16").interval
    nearest = find_kernels(load_profile("gb300"), "gemm", "bf16").sources[0].fit
    assert (low, high) == (nearest.low / UNMEASURED_DEVICE, nearest.high * UNMEASURED_DEVICE)
    assert low < fit.low < fit.high < high


def test_a_large_product_has_the_efficiency_that_the_profile_cites() -> None:
    hardware, (flops, moved) = load_profile("a100-sxm"), OP_CLASSES["gemm"].count_work(ANCHOR, 2)
    cited = hardware.op_s("matmul", "bf16", float(flops[0]), moved=float(moved[0]), kind=PRODUCT_KIND)
    assert find_kernels(hardware, "gemm", "bf16").seconds(ANCHOR)[0] == pytest.approx(cited, rel=1e-3)


def test_no_product_is_faster_than_the_peak_of_the_device() -> None:
    for name in ("l4", "l40s", "h20", "b300-sxm", "mi300x", "a100-sxm", "tpu-v5e"):
        seconds = find_kernels(load_profile(name), "gemm", "bf16").seconds(PRODUCT)[0]
        assert seconds >= 2 * 4096 * 8192 * 4096 / load_profile(name).peak_flops["bf16"]


def test_memory_bounds_streaming_kernels_of_every_element_type_alike() -> None:
    size = {"B": np.array([8192.0]), "H": np.array([4096.0])}
    half = {**size, "B": size["B"] / 2}
    wide, narrow = (find_kernels(load_profile("h100-sxm"), "add", dtype) for dtype in ("f32", "bf16"))
    assert narrow.key == "add.f32"
    assert narrow.seconds(size) == pytest.approx(wide.seconds(half))


def test_a_class_that_no_device_has_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no measurements"):
        find_kernels(load_profile("h100-sxm"), "all_gather", "gloo")
