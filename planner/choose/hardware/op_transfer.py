"""Times of kernels on any device: by its own fitted class, or by those of the devices that were measured.

On another device a kernel whose roofline takes as long takes as long: launches, waves and latencies are times, not
shares of a peak. So the size along which a class grows (`OpClass.grows_with`) is scaled until the roofline of the
measured device takes what it takes on the asked one; a class without such a size keeps its shape. What the measured
device then takes, over the roofline of the asked one, is the correction of that shape. Several measured devices are
averaged in the logarithm, each with the weight of the inverse square of its distance in peaks.

Where the profile cites an efficiency of products of its device, 16-bit products whose roofline is the peak rate are
scaled, by the share of their roofline that is no launch, so that a large one (`ANCHOR`) has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.choose.hardware import TRANSFERRED, Hardware, load_profile
from planner.choose.hardware.efficiency import PRODUCT
from planner.choose.hardware.intervals import UNMEASURED_DEVICE
from planner.choose.hardware.op_classes import OP_CLASSES, Column, Columns, OpClass, Work
from planner.choose.hardware.op_rates import FORMATS, find_itemsize, find_rates
from planner.choose.hardware.op_times import LAUNCH_S, OpFit, Rates, correct_s, list_fitted, load_fits, roofline_s
from planner.errors import InvalidRequest

NEAR = 0.1
"""Distance below which a device counts as much as one at that distance; judged."""
STAND_INS = {
    "f16": ("bf16", "f32"),
    "bf16": ("f16", "f32"),
    "fp8_static": ("fp8",),
    "fp8": ("f32",),
    "low_latency": ("normal",),
}
"""Element types and modes that stand in for one that no device has; f32 only for classes that memory bounds."""
ANCHOR = {"m": np.array([8192.0]), "n": np.array([8192.0]), "k": np.array([8192.0])}
"""The large product that has the cited efficiency of products."""


@dataclass(frozen=True)
class MeasuredClass:
    """A fitted class of a measured device, its peaks, and its weight in an average of several."""

    device: str
    fit: OpFit
    rates: Rates
    weight: float


@dataclass(frozen=True)
class KernelTimes:
    """Times of a class of kernels on a device.

    key       `class.variant` of the fits: the element type, library or mode that was measured
    rates     peaks of the asked device, whose elements have `itemsize` bytes
    sources   measured devices, the nearest first
    is_own    whether the device itself, the only source, was measured
    anchor    log2 of the factor of large kernels
    """

    key: str
    rates: Rates
    itemsize: float
    sources: tuple[MeasuredClass, ...]
    is_own: bool
    anchor: float = 0.0

    @property
    def kernel(self) -> OpClass:
        return OP_CLASSES[self.key.split(".")[0]]

    @property
    def device(self) -> str:
        """The measured device, or the nearest one."""
        return self.sources[0].device

    @property
    def variant(self) -> str:
        return self.key.split(".", 1)[1]

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of measured over predicted time within the measured shapes."""
        fit, spread = self.sources[0].fit, 1.0 if self.is_own else UNMEASURED_DEVICE
        return fit.low / spread, fit.high * spread

    @property
    def name(self) -> str:
        """The class, and whether other devices stand in for its own."""
        return self.key if self.is_own else f"{self.key} of other devices"

    @property
    def source(self) -> str:
        """What the times rest on."""
        return f"{self.key} fitted on {self.device}" if self.is_own else f"{self.name}, {self.device} the nearest"

    @property
    def least_correction(self) -> float:
        """A correction that none falls below; of other devices no such is known."""
        return float(self.sources[0].fit.lattice.values.min()) if self.is_own else -math.inf

    def seconds(self, columns: Columns) -> Column:
        """Return the time of each kernel."""
        return self.correct(self.kernel.count_work(columns, self.itemsize), self.correction(columns))

    def correct(self, work: Work, correction: Column | float) -> Column:
        """Return the time of work whose shape has a correction."""
        return correct_s(self.kernel, self.rates, work, correction=correction)

    def correction(self, columns: Columns) -> Column:
        """Return log2 of the time over the roofline of each shape."""
        if self.is_own:
            return self.sources[0].fit.lattice.at(self.kernel.shape(columns))
        work = self.kernel.count_work(columns, self.itemsize)
        roofline = roofline_s(self.rates, work)
        logs = [np.log2(self._transfer_s(columns, work, source) / roofline) for source in self.sources]
        average: Column = np.average(logs, axis=0, weights=[source.weight for source in self.sources])
        computes = work[0] / self.rates.flops >= work[1] / self.rates.bandwidth
        return average + np.where(computes, self.anchor * (1 - LAUNCH_S / roofline), 0.0)

    def covers(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which kernels have a shape within the measured ones."""
        return self.sources[0].fit.lattice.covers(self.kernel.shape(columns))

    def _transfer_s(self, columns: Columns, work: Work, source: MeasuredClass) -> Column:
        """Return the seconds on the asked device, by the fit of another device."""
        kernel, fit = self.kernel, source.fit
        if not kernel.grows_with:
            return correct_s(kernel, self.rates, work, correction=fit.lattice.at(kernel.shape(columns)))
        own = kernel.count_work(columns, fit.itemsize)
        asked, there = (_longest_s(*each) for each in ((self.rates, work), (source.rates, own)))
        grown = {**columns, kernel.grows_with: columns[kernel.grows_with] * asked / there}
        return fit.seconds(kernel, source.rates, grown)


def find_kernels(hardware: Hardware, op: str, variant: str, *, among: Sequence[str] | None = None) -> KernelTimes:
    """Return the times of a class on a device: measured there, or on all or some other devices.

    variant  the element type, library or mode
    among    the measured devices that count; default: the profile's `op_times`, else all

    Raises InvalidRequest where no device has the class.
    """
    own = hardware.op_times if among is None and hardware.op_times != TRANSFERRED else None
    devices = tuple(among or list_fitted())
    rates = find_rates(hardware, f"{op}.{variant}")
    found = _find_sources(op, variant, own, devices, rates)
    if found is None:
        where, wanted = f"{hardware.name}: {op}", "a measured type or library"
        raise InvalidRequest("no measurements", where=where, got=variant, wanted=wanted)
    key, sources = found
    times = KernelTimes(key, rates, find_itemsize(variant), sources, is_own=sources[0].device == own)
    anchor = 0.0 if times.is_own else _find_anchor(hardware, times)
    return KernelTimes(key, rates, times.itemsize, sources, times.is_own, anchor)


def list_measured() -> list[tuple[str, str]]:
    """Return every class and variant that some device has."""
    keys = {key for name in list_fitted() for key in load_fits(name)}
    return sorted((op, variant) for op, _, variant in (key.partition(".") for key in keys))


@lru_cache(maxsize=1 << 10)
def is_measured(op: str, variant: str) -> bool:
    """Return whether some device has a class, or what stands in for its variant."""
    if op not in OP_CLASSES:
        return False
    keys = [f"{op}.{word}" for word in (variant, *_stand_ins(op, variant))]
    return any(key in load_fits(name) for name in list_fitted() for key in keys)


@lru_cache(maxsize=1 << 10)
def _find_sources(
    op: str, variant: str, own: str | None, devices: tuple[str, ...], rates: Rates
) -> tuple[str, tuple[MeasuredClass, ...]] | None:
    """Return the measured class and its devices: the own one, else those with the variant or what stands in for it."""
    words = [variant, *_stand_ins(op, variant)]
    for names in ((own,) if own else (), devices):
        for word in words:
            key = f"{op}.{word}"
            sources = [_weigh(name, key, rates) for name in names if key in load_fits(name)]
            if sources:
                return key, tuple(sorted(sources, key=lambda each: (-each.weight, each.device)))
    return None


def _stand_ins(op: str, variant: str) -> tuple[str, ...]:
    return tuple(word for word in STAND_INS.get(variant, ()) if word != "f32" or OP_CLASSES[op].is_streaming)


def _weigh(device: str, key: str, rates: Rates) -> MeasuredClass:
    """Return a measured class with its weight, by its distance in peak rate and bandwidth, in powers of e."""
    own = find_rates(load_profile(device), key)
    pairs = [(own.bandwidth, rates.bandwidth)]
    if math.isfinite(rates.flops):
        pairs.append((own.flops, rates.flops))
    distance = sum(abs(math.log(one / two)) for one, two in pairs)
    return MeasuredClass(device, load_fits(device)[key], own, 1 / (distance + NEAR) ** 2)


def _longest_s(rates: Rates, work: Work) -> Column:
    flops, moved = work
    return np.maximum(flops / rates.flops, moved / rates.bandwidth)


def _find_anchor(hardware: Hardware, times: KernelTimes) -> float:
    """Return log2 of the cited time of a large 16-bit product over the transferred one; 0 where none is cited."""
    if times.key not in ("gemm.bf16", "gemm.f16") or PRODUCT not in hardware.efficiency:
        return 0.0
    flops, moved = (float(each[0]) for each in times.kernel.count_work(ANCHOR, times.itemsize))
    cited = hardware.op_s("", FORMATS[times.variant][0], flops, moved=moved, kind=PRODUCT)
    return math.log2(cited / float(times.seconds(ANCHOR)[0]))
