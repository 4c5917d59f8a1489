"""Times of kernels on devices that were not measured."""

from __future__ import annotations

import numpy as np
import pytest

from planner.choose.hardware import load_profile
from planner.choose.hardware.op_classes import OP_CLASSES
from planner.choose.hardware.op_rates import find_rates
from planner.choose.hardware.op_times import load_fits
from planner.choose.hardware.op_transfer import time_kernels
from planner.errors import InvalidRequest

BYTES = np.array([1e5, 1e7, 1e9])
GROUP = {"bytes": BYTES, "devices": np.full(3, 8.0)}
PRODUCT = {"m": np.array([4096.0]), "n": np.array([8192.0]), "k": np.array([4096.0])}


def test_a_measured_device_has_its_own_times() -> None:
    found, key = time_kernels("h100-sxm", "all_gather", GROUP, variant="nccl"), "all_gather.nccl"
    rates = find_rates(load_profile("h100-sxm"), key)
    own = load_fits("h100-sxm")[key].seconds(OP_CLASSES["all_gather"], rates, GROUP)
    assert (found.device, found.seconds.tolist()) == ("h100-sxm", own.tolist())


def test_a_collective_whose_bytes_take_as_long_takes_as_long_on_another_device() -> None:
    here, there = (find_rates(load_profile(name), "all_gather.nccl").bandwidth for name in ("gb200", "h100-sxm"))
    faster = time_kernels(
        "gb200", "all_gather", {**GROUP, "bytes": BYTES * here / there}, variant="nccl", among=["h100-sxm"]
    )
    measured = time_kernels("h100-sxm", "all_gather", GROUP, variant="nccl")
    assert faster.seconds == pytest.approx(measured.seconds)


def test_several_devices_are_averaged_and_the_nearest_is_named() -> None:
    one, two, both = (
        time_kernels("b200-sxm", "gemm", PRODUCT, variant="bf16", among=among)
        for among in (["h100-sxm"], ["h200-sxm"], ["h100-sxm", "h200-sxm"])
    )
    assert min(one.seconds[0], two.seconds[0]) <= both.seconds[0] <= max(one.seconds[0], two.seconds[0])
    assert both.device == "h200-sxm"


def test_no_product_is_faster_than_the_peak_of_the_device() -> None:
    for name in ("l4", "l40s", "h20", "b300-sxm", "mi300x", "a100-sxm", "tpu-v5e"):
        seconds = time_kernels(name, "gemm", PRODUCT, variant="bf16").seconds[0]
        assert seconds >= 2 * 4096 * 8192 * 4096 / load_profile(name).peak_flops["bf16"]


def test_a_class_that_no_device_has_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no measurements"):
        time_kernels("h100-sxm", "all_gather", GROUP, variant="gloo")
