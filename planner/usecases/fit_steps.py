"""Fits the training steps of a profile to steps measured on one's own machine (`planner.choose.hardware.corrections`).

The rows are those of `predict steps` with `step_s`; the device is the profile's, whatever a row names. One correction
is fitted for each software, on top of the constants of that software and of the profile's kernels and links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.choose.hardware import Hardware
from planner.choose.hardware.corrections import FittedCorrections, Seconds, fit_corrections
from planner.errors import InvalidRequest
from planner.usecases.predict_rows import RowProfiles, read_measured_s
from planner.usecases.predict_steps import time_parts
from planner.usecases.steps.rows import StepRow, read_step_row


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A measured training step: what was run, and its seconds."""

    row: StepRow
    step_s: float


def read_steps(rows: Sequence[object], hardware: Hardware, where: str) -> tuple[list[MeasuredStep], list[str]]:
    """Return the measured steps of the lines of a file, and what is wrong with the others.

    Rows whose `status` is not `ok` did not end, and are left out.
    """
    steps, faults = [], []
    for number, row in enumerate(rows, 1):
        if isinstance(row, Mapping) and row.get("status", "ok") != "ok":
            continue
        try:
            steps.append(_read_step(row, hardware))
        except InvalidRequest as error:
            faults.append(str(error.at(f"{where}: line {number}")))
    return steps, faults


def _read_step(row: object, hardware: Hardware) -> MeasuredStep:
    read = read_step_row(row, RowProfiles(every=hardware))
    assert isinstance(row, Mapping), "a row that was read"
    return MeasuredStep(read, read_measured_s(row, "step_s"))


def fit_steps(steps: Sequence[MeasuredStep]) -> FittedCorrections:
    """Fit a correction to the steps of each software."""

    def predict(members: Sequence[MeasuredStep]) -> Seconds:
        return np.array([sum(time_parts(each.row).values()) for each in members])

    groups: dict[str, list[MeasuredStep]] = defaultdict(list)
    for step in steps:
        groups[step.row.stack].append(step)
    return fit_corrections(groups, predict, lambda step: step.step_s, of="steps of")
