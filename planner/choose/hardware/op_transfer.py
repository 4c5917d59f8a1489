"""Times of kernels on any device: by its own fitted class, or by those of the devices that were measured.

On another device a kernel whose roofline takes as long takes as long: launches, waves and latencies are times, not
shares of a peak. So the size along which a class grows (`OpClass.grows_with`) is scaled until the roofline of the
measured device takes what it takes on the asked one; a class without such a size keeps its shape, and the asked
device's peaks. Several measured devices are averaged in the logarithm, each with the weight of the inverse square of
its distance in peaks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.choose.hardware import load_profile
from planner.choose.hardware.op_classes import OP_CLASSES, Column, Columns
from planner.choose.hardware.op_rates import find_rates
from planner.choose.hardware.op_times import OpFit, Rates, bound_s, list_fitted, load_fits
from planner.errors import InvalidRequest

NEAR = 0.1
"""Distance below which a device counts as much as one at that distance; judged."""
STAND_INS = {"f16": "bf16", "bf16": "f16", "fp8_static": "fp8", "low_latency": "normal"}


class KernelTimes(NamedTuple):
    """Seconds of kernels, and what they rest on.

    fit         the fitted class of `device`, which is the nearest one that was measured
    variant     the element type or library that was measured
    is_covered  which kernels have a shape within the measured ones
    """

    seconds: Column
    fit: OpFit
    device: str
    variant: str
    is_covered: NDArray[np.bool_]


def time_kernels(
    device: str, op: str, columns: Columns, *, variant: str, among: Sequence[str] | None = None
) -> KernelTimes:
    """Return the times of kernels by the columns of their class, from measurements of all or some devices.

    Raises InvalidRequest where no device has the class.
    """
    word, fitted = _find_measured(device, op, variant, among=among)
    key, rates = f"{op}.{word}", find_rates(load_profile(device), f"{op}.{variant}")
    distances = {name: _distance(op, (device, variant), (name, word)) for name in fitted}
    nearest = min(fitted, key=lambda name: (name != device, distances[name], name))
    fit, shapes = load_fits(nearest)[key], OP_CLASSES[op].shape(columns)
    if nearest == device:
        seconds = fit.seconds(OP_CLASSES[op], rates, columns)
    else:
        weights = np.array([1 / (distances[name] + NEAR) ** 2 for name in fitted])
        logs = [np.log(_transfer_s(op, columns, rates, source=(name, word))) for name in fitted]
        seconds = np.exp(np.average(logs, axis=0, weights=weights))
    return KernelTimes(seconds, fit, nearest, word, fit.lattice.covers(shapes))


def _find_measured(device: str, op: str, variant: str, *, among: Sequence[str] | None) -> tuple[str, list[str]]:
    """Return the variant that was measured, the asked one or its stand-in, and the devices."""
    for word in (variant, STAND_INS.get(variant, variant)):
        fitted = [name for name in among or list_fitted() if f"{op}.{word}" in load_fits(name)]
        if fitted:
            return word, fitted
    raise InvalidRequest("no measurements", where=f"{device}: {op}", got=variant, wanted="a measured type or library")


def _transfer_s(op: str, columns: Columns, rates: Rates, *, source: tuple[str, str]) -> Column:
    """Return the seconds on a device with these rates, by the fit of another device."""
    name, variant = source
    kernel, fit = OP_CLASSES[op], load_fits(name)[f"{op}.{variant}"]
    own = find_rates(load_profile(name), f"{op}.{variant}")
    if not kernel.grows_with:
        return fit.seconds(kernel, rates, columns)
    flops, moved = kernel.count_work(columns, fit.itemsize)
    asked, there = (np.maximum(flops / each.flops, moved / each.bandwidth) for each in (rates, own))
    scaled = {**columns, kernel.grows_with: columns[kernel.grows_with] * asked / there}
    bound = bound_s(kernel, rates, (flops, moved))
    return np.maximum(fit.seconds(kernel, own, scaled), bound)


def _distance(op: str, asked: tuple[str, str], other: tuple[str, str]) -> float:
    """Return how far two devices, each with its variant, are apart in peak rate and bandwidth, in powers of e."""
    own, others = (find_rates(load_profile(name), f"{op}.{variant}") for name, variant in (asked, other))
    rates = [(own.bandwidth, others.bandwidth), *([] if math.isinf(own.flops) else [(own.flops, others.flops)])]
    return sum(abs(math.log(one / two)) for one, two in rates)
