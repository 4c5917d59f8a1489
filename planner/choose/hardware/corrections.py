"""Corrections of predicted times, fitted to times measured on one's own machine: offset + scale * predicted.

They are of a class of kernels, or of the training steps of one software.

The two figures minimize the sum of relative errors, |predicted / measured - 1|, by iteratively reweighted least squares
(Holland, Welsch, "Robust regression using iteratively reweighted least-squares", 1977). Each fifth of the shapes, taken
in turn by predicted time, is kept out of a fit and predicted by it (cross-validation). Only where this lowers the
median error is the correction fitted to all rows; otherwise it does not generalize, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidHardware, InvalidRequest

Seconds = NDArray[np.float64]
Time = TypeVar("Time", float, Seconds)
Row = TypeVar("Row")
MIN_SHAPES = 10
MAX_SECONDS = 3600.0
"""A measured time is no longer."""
FOLDS = 5
ROUNDS = 20


@dataclass(frozen=True, slots=True)
class TimeCorrection:
    """Seconds are offset_s + scale * predicted; `low`, `high` are the interval of measured over corrected time."""

    scale: float
    offset_s: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (self.scale > 0 and self.offset_s >= 0 and 0 < self.low <= self.high):
            wanted = "scale above 0, offset_s of 0 or more, low above 0 and at most high"
            raise InvalidHardware("correction", wanted=wanted)

    @property
    def is_identity(self) -> bool:
        """Whether times stay as they are predicted."""
        return self.scale == 1 and self.offset_s == 0

    def apply(self, seconds: Time) -> Time:
        """Return the corrected seconds."""
        return self.offset_s + self.scale * seconds


def find_correction(
    corrections: Mapping[str, TimeCorrection], name: str, interval: tuple[float, float]
) -> TimeCorrection:
    """Return the correction of a name, else the identity.

    interval  of measured over predicted time where nothing is corrected
    """
    return corrections.get(name) or TimeCorrection(1.0, 0.0, *interval)


@dataclass(frozen=True, slots=True)
class FittedCorrection:
    """A fitted correction, with the median error of rows by fits without them, before and after."""

    name: str
    rows: int
    before: float
    after: float
    fitted: TimeCorrection


@dataclass(frozen=True, slots=True)
class FittedCorrections:
    """The corrections that were fitted, and why others were refused."""

    corrections: tuple[FittedCorrection, ...]
    refused: tuple[str, ...]


def fit_correction(name: str, predicted: Seconds, measured: Seconds, *, of: str = "class") -> FittedCorrection:
    """Fit a correction. Raises InvalidHardware for too few shapes, and where it does not generalize.

    of  what the name is one of, for the messages
    """
    shapes = np.unique(predicted)
    if len(shapes) < MIN_SHAPES:
        wanted = f"{MIN_SHAPES} or more"
        raise InvalidHardware("too few measured shapes", where=f"{of} {name!r}", got=len(shapes), wanted=wanted)
    corrected = np.empty_like(predicted)
    for fold in range(FOLDS):
        kept = np.isin(predicted, shapes[fold::FOLDS])
        offset, scale = _fit_line(predicted[~kept], measured[~kept])
        corrected[kept] = offset + scale * predicted[kept]
    before, after = (float(np.median(np.abs(each / measured - 1))) for each in (predicted, corrected))
    if after >= before:
        got = f"median error {after:.1%} on rows kept out of the fit"
        wanted = f"below {before:.1%}, that of the profile"
        raise InvalidHardware("the fit does not generalize", where=f"{of} {name!r}", got=got, wanted=wanted)
    low, high = np.quantile(measured / corrected, [0.05, 0.95])
    offset, scale = _fit_line(predicted, measured)
    return FittedCorrection(name, len(measured), before, after, TimeCorrection(scale, offset, float(low), float(high)))


def fit_corrections(
    groups: Mapping[str, Sequence[Row]],
    predict: Callable[[Sequence[Row]], Seconds],
    measured_s: Callable[[Row], float],
    *,
    of: str = "class",
) -> FittedCorrections:
    """Fit a correction to each group of measured rows.

    predict     returns the predicted seconds of the rows of a group
    measured_s  returns the measured seconds of a row
    of          what a group's name is one of, for the messages
    """
    corrections, refused = [], []
    for name, rows in sorted(groups.items()):
        try:
            predicted, measured = predict(rows), np.array([measured_s(row) for row in rows])
            corrections.append(fit_correction(name, predicted, measured, of=of))
        except (InvalidHardware, InvalidRequest) as error:
            refused.append(str(error))
    return FittedCorrections(tuple(corrections), tuple(refused))


def _fit_line(predicted: Seconds, measured: Seconds) -> tuple[float, float]:
    """Return offset and scale; a negative offset becomes 0."""
    matrix = np.stack([1 / measured, predicted / measured], axis=1)
    offset, scale = _minimize_errors(matrix)
    if offset > 0 and scale > 0:
        return float(offset), float(scale)
    return 0.0, float(_minimize_errors(matrix[:, 1:])[0])


def _minimize_errors(matrix: Seconds) -> Seconds:
    """Return the x that minimizes the sum of |matrix x - 1|."""
    weights = np.ones(len(matrix))
    found: Seconds = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        found = np.asarray(np.linalg.lstsq(matrix * weights[:, None], weights, rcond=None)[0], np.float64)
        weights = 1 / np.sqrt(np.maximum(np.abs(matrix @ found - 1), 1e-4))
    return found
