"""Seconds of an op's local part on a device: by its curves, else its class of kernels, else the roofline.

`find_kernels` (`planner.choose.hardware.op_transfer`) gives the times of a class, fitted on the profile's device or
transferred from others; `planner.choose.op_columns` says which class an op belongs to, and its columns. Gradients of
attention have no measurements: a cited efficiency prices them, else that of the forward kernel of their shape.

A profile without `op_times`, and an op or element type without a class, takes what `Hardware.op_s` says.

A time may fall where a shape grows. So the bound of all plans on n devices takes the least correction of all local
shapes that divisors of n leave, and an n-th of the work:

    seconds >= max(bound(work / n), roofline(work / n) * 2 ** (least correction))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from planner.choose.hardware import Hardware
from planner.choose.hardware.corrections import TimeCorrection, find_correction
from planner.choose.hardware.efficiency import ATTENTION, ATTENTION_BACKWARD, PRODUCT, work_class
from planner.choose.hardware.intervals import UNMEASURED_OP
from planner.choose.hardware.op_classes import OP_CLASSES, Column, Columns
from planner.choose.hardware.op_rates import FORMATS
from planner.choose.hardware.op_transfer import KernelTimes, find_kernels, is_measured
from planner.choose.op_columns import find_class, read_columns
from planner.ir.graph import Op
from planner.ir.indexing import LoopKind
from planner.ir.sharding import block_size

MAX_SHAPES = 5_000
"""Local shapes of an op that its bound looks at one by one; of more, every shape of the fit counts."""
VARIANTS = {kind: word for word, (kind, _) in reversed(FORMATS.items())} | {"f8e5m2": "fp8"}
"""The word of a fitted class for the element type of an op."""
PRICED_CLASSES: dict[str, str | None] = {
    "gemm": PRODUCT,
    "linear": PRODUCT,
    "bmm": PRODUCT,
    "moe": PRODUCT,
    "context_attention": ATTENTION,
    "generation_attention": ATTENTION,
    **{name: None for name, kernel in OP_CLASSES.items() if kernel.is_streaming},
}
"""The classes of kernels that price ops, and the work classes that stand in for them."""


class LocalWork(NamedTuple):
    """What the largest local part of an op does: FLOPs, bytes read and written, and the sizes of its loops."""

    flops: float
    moved: int
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class OpPricing:
    """What prices an op: the times of its class of kernels where it has one, else its work class `kind`.

    correction  that of the class, whether or not the class has times
    """

    op: Op
    hardware: Hardware
    kind: str | None
    times: KernelTimes | None
    correction: TimeCorrection

    @classmethod
    def of(cls, op: Op, hardware: Hardware) -> OpPricing:
        kind, word = work_class(op), VARIANTS.get(op.results[0].dtype, "")
        if _has_curves(op, hardware):
            return cls(op, hardware, kind, None, TimeCorrection(1.0, 0.0, *UNMEASURED_OP))
        name = find_class(op, kind)
        is_cited = kind == ATTENTION_BACKWARD and kind in hardware.efficiency
        times = None if is_cited else find_times(hardware, name, word)
        # A correction is of forward kernels.
        corrections = {} if kind == ATTENTION_BACKWARD else hardware.op_corrections
        interval = UNMEASURED_OP if times is None else times.interval
        return cls(op, hardware, kind, times, find_correction(corrections, f"{name}.{word}", interval))

    def seconds(self, works: Sequence[LocalWork]) -> Sequence[float]:
        """Return the seconds of each amount of work."""
        return list(map(self.correction.apply, self._predict(works)))

    def _predict(self, works: Sequence[LocalWork]) -> Sequence[float]:
        if self.times is None:
            name, dtype = op_variant(self.op), self.op.results[0].dtype
            return [self.hardware.op_s(name, dtype, work.flops, moved=work.moved, kind=self.kind) for work in works]
        flops, moved = (np.array(column, np.float64) for column in list(zip(*works, strict=True))[:2])
        columns = read_columns(self.op, self.kind, [work.sizes for work in works])
        seconds: list[float] = self.times.correct((flops, moved), self.times.correction(columns)).tolist()
        return seconds

    def least_s(self, work: LocalWork, devices: int) -> float:
        """Return a lower bound on the seconds of some device, of the unsharded work and any plan on `devices`."""
        part = LocalWork(work.flops / devices, work.moved, work.sizes)
        if self.times is None:
            name, dtype = op_variant(self.op), self.op.results[0].dtype
            seconds = self.hardware.op_s(name, dtype, part.flops, moved=part.moved / devices, kind=self.kind)
            return self.correction.apply(seconds)
        sizes = _split_sizes(self.op, work.sizes, devices)
        if sizes is None:
            least = self.times.least_correction
        else:
            least = float(self.times.correction(read_columns(self.op, self.kind, sizes)).min())
        done = np.array([part.flops]), np.array([part.moved / devices])
        return self.correction.apply(float(self.times.correct(done, least)[0]))

    @property
    def source(self) -> str:
        """What the price rests on: a class of kernels, measured curves, an efficiency, or the roofline."""
        if _has_curves(self.op, self.hardware):
            return "measured curve"
        base = f"efficiency of {self.kind}" if self.kind in self.hardware.efficiency else "roofline"
        if self.times is not None:
            base = self.times.source
        return base if self.correction.is_identity else f"{base}, corrected by own measurements"

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of measured over predicted time: on shapes kept out of a fit, or judged where nothing was fitted."""
        return self.correction.low, self.correction.high

    def is_covered(self, sizes: Sequence[int]) -> bool:
        """Return whether the shape with loops of these sizes lies within the measured ones, if there are any."""
        if self.times is None:
            return True
        return bool(self.times.covers(read_columns(self.op, self.kind, [tuple(sizes)]))[0])


def find_times(hardware: Hardware, name: str, word: str) -> KernelTimes | None:
    """Return the times of a class for an element type, by which a profile prices ops; None: the roofline does."""
    if hardware.op_times is None or not is_measured(name, word):
        return None
    return find_kernels(hardware, name, word)


def kernel_s(hardware: Hardware, op: str, dtype: str, *, columns: Columns) -> Column:
    """Return the seconds of kernels of a class in `PRICED_CLASSES`, given by its columns, before any correction."""
    times = find_times(hardware, op, dtype)
    if times is not None:
        return times.seconds(columns)
    word, itemsize = FORMATS[dtype]
    work = zip(*OP_CLASSES[op].count_work(columns, itemsize), strict=True)
    kind = PRICED_CLASSES[op]
    return np.array([hardware.op_s("", word, float(flops), moved=float(moved), kind=kind) for flops, moved in work])


def op_variant(op: Op) -> str:
    """Return the key of an op's curves: its name with the word-valued attributes, which say how it is computed."""
    words = [value for key, value in sorted(op.attrs.items()) if isinstance(value, str) and value != "none"]
    return ":".join([op.op, *words])


def _has_curves(op: Op, hardware: Hardware) -> bool:
    return f"{op_variant(op)}.{op.results[0].dtype}" in hardware.curves or op_variant(op) in hardware.curves


def _split_sizes(op: Op, sizes: Sequence[int], devices: int) -> list[tuple[int, ...]] | None:
    """Return the sizes of loops that are left on devices, however these are shared out; None where too many."""
    loops = [loop for loop in op.rule.loops if loop.kind is not LoopKind.LINEAR]
    may_split = [loop.kind in (LoopKind.PARALLEL, LoopKind.REDUCTION) and loop.size > 1 for loop in loops]
    shapes: set[tuple[tuple[int, ...], int]] = {((), devices)}
    for size, splits in zip(sizes, may_split, strict=True):
        shapes = {
            ((*shape, block_size(size, count)), rest // count)
            for shape, rest in shapes
            for count in (_divisors(rest) if splits else (1,))
        }
        if len(shapes) > MAX_SHAPES:
            return None
    return list({shape for shape, _ in shapes})


@lru_cache(maxsize=1024)
def _divisors(number: int) -> tuple[int, ...]:
    return tuple(each for low in range(1, math.isqrt(number) + 1) if number % low == 0 for each in {low, number // low})
