"""Measured times of an op by amount of work, interpolated between the points and extrapolated beyond them.

The time is piecewise linear in the work. Each measured time is lowered to the least time of any larger work, so that
more work never takes less time. Below the first point the time is constant; beyond the last point the rate is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.errors import InvalidHardware


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (work, seconds), both ascending and above 0; work is in flops or bytes."""

    work: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.work or len(self.work) != len(self.seconds):
            raise InvalidHardware("points of a curve", got=f"{len(self.work)}, {len(self.seconds)}", wanted="as many")
        if self.work[0] <= 0 or self.seconds[0] <= 0 or min(np.diff(self.work), default=1) <= 0:
            raise InvalidHardware("points of a curve", wanted="work and seconds above 0, work ascending")
        if min(np.diff(self.seconds), default=0) < 0:
            raise InvalidHardware("points of a curve", wanted="no less time for more work")

    @classmethod
    def of(cls, measured: Iterable[tuple[float, float]]) -> Curve:
        """Return the largest monotone curve that is nowhere above the measured points."""
        work, seconds = zip(*sorted(dict(sorted(measured, reverse=True)).items()), strict=True)
        lowest = np.minimum.accumulate(np.array(seconds)[::-1])[::-1]
        return cls(tuple(map(float, work)), tuple(lowest.tolist()))

    def at(self, work: float) -> float:
        """Return the seconds of an amount of work."""
        if work > self.work[-1]:
            return self.seconds[-1] * work / self.work[-1]
        return float(np.interp(work, self.work, self.seconds))


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of one op by flops and by bytes read and written. Where both are known, the longer time counts."""

    flops: Curve | None = None
    bytes: Curve | None = None

    def seconds(self, flops: float, moved: float) -> float:
        known = [(self.flops, flops), (self.bytes, moved)]
        return max((curve.at(work) for curve, work in known if curve), default=0.0)
