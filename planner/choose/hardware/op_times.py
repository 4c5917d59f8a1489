"""Times of single kernels: a roofline, and an efficiency by shape that is fitted to published measurements.

    seconds = max(bound, (launch + max(flops / peak, bytes / bandwidth)) * 2 ** correction(shape))

`correction` is a lattice: values at the knots of a few shape axes, multilinear between them in the logarithm of the
shape, constant beyond. `bound` is what the device's peaks allow, so that no prediction is faster than the datasheet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.choose.hardware.op_classes import OP_CLASSES, Column, Columns, OpClass, Work

LAUNCH_S = 2e-6


@dataclass(frozen=True)
class Lattice:
    """Values at the knots of positive axes, multilinear between them in log2 of each axis, constant beyond."""

    knots: tuple[tuple[float, ...], ...]
    values: NDArray[np.float64]

    def at(self, shape: Sequence[Column]) -> Column:
        """Return the values at points given as one array for each axis."""
        indices, weights = find_corners(self.knots, shape)
        corners: Column = (self.values[indices] * weights).sum(axis=1)
        return corners

    def covers(self, shape: Sequence[Column]) -> NDArray[np.bool_]:
        """Return which points lie within the knots of every axis."""
        inside = [(axis >= knots[0]) & (axis <= knots[-1]) for knots, axis in zip(self.knots, shape, strict=True)]
        return np.asarray(np.logical_and.reduce(inside))


def find_corners(
    knots: Sequence[Sequence[float]], shape: Sequence[Column]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return flat indices and weights `[points, 2 ** axes]` of the lattice cell that holds each point."""
    indices, weights = np.zeros((len(shape[0]), 1), np.int64), np.ones((len(shape[0]), 1))
    for axis, points in zip(shape, knots, strict=True):
        logs = np.log2(points)
        place = np.clip(np.log2(axis), logs[0], logs[-1])
        cell = np.clip(np.searchsorted(logs, place, side="right") - 1, 0, len(logs) - 2)
        upper = ((place - logs[cell]) / (logs[cell + 1] - logs[cell]))[:, None]
        lower = indices * len(logs) + cell[:, None]
        indices = np.concatenate([lower, lower + 1], axis=1)
        weights = np.concatenate([weights * (1 - upper), weights * upper], axis=1)
    return indices, weights


@dataclass(frozen=True)
class Rates:
    """Datasheet peaks of a device for one class: FLOP/s, and B/s of memory or of the link of a collective."""

    flops: float
    bandwidth: float


@dataclass(frozen=True)
class OpFit:
    """A fitted class of kernels of one device and element type.

    low, high  5th and 95th percentile of measured over predicted time on rows kept out of the fit
    """

    lattice: Lattice
    itemsize: float
    low: float
    high: float

    def seconds(self, op: OpClass, rates: Rates, columns: Columns) -> Column:
        """Return the predicted time of each row."""
        work = op.count_work(columns, self.itemsize)
        return correct_s(op, rates, work, correction=self.lattice.at(op.shape(columns)))


def correct_s(op: OpClass, rates: Rates, work: Work, *, correction: Column | float) -> Column:
    """Return the time of work, FLOPs and bytes, whose shape has a correction."""
    return np.maximum(roofline_s(rates, work) * np.exp2(correction), bound_s(op, rates, work))


def roofline_s(rates: Rates, work: Work) -> Column:
    """Return the launch and the longer of compute and memory time at the datasheet's peaks."""
    flops, moved = work
    return LAUNCH_S + np.maximum(flops / rates.flops, moved / rates.bandwidth)


def bound_s(op: OpClass, rates: Rates, work: Work) -> Column:
    """Return the time below which no kernel can do the work."""
    flops, moved = work
    if not op.is_exact:
        return np.asarray(flops / rates.flops)
    return np.maximum(flops / rates.flops, moved / rates.bandwidth)


@lru_cache
def load_fits(device: str) -> Mapping[str, OpFit]:
    """Return the fitted classes of a device by `class.dtype`; none for a device without measurements."""
    return {key: parse_fit(key, raw) for key, raw in read_fits(device).items()}


def read_fits(device: str) -> dict[str, Any]:
    """Return the document of a device's fitted classes, empty for a device without measurements."""
    file = resources.files(__package__) / "op_times" / f"{device}.json"
    return dict(json.loads(file.read_text())["fits"]) if file.is_file() else {}


@lru_cache
def list_fitted() -> tuple[str, ...]:
    """Return the names of the devices with fitted classes."""
    folder = resources.files(__package__) / "op_times"
    return tuple(sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json")))


def parse_fit(key: str, raw: Mapping[str, Any]) -> OpFit:
    """Parse one fitted class; its values are in hundredths of a power of two."""
    knots = OP_CLASSES[key.split(".")[0]].knots
    values = np.array(raw["correction"], np.float64) / 100
    return OpFit(Lattice(knots, values), raw["itemsize"], raw["low"], raw["high"])
