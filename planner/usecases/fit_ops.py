"""Fits the kernels of a profile to times measured on one's own machine (`planner.choose.hardware.corrections`).

The rows are those of `predict ops` with a column `time_s`, as CSV, or the products in a trace of torch.profiler. Rows
that cannot be read are told apart by line; the others are fitted.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.choose.hardware import Hardware
from planner.choose.hardware.corrections import FittedCorrections, Seconds, fit_corrections
from planner.choose.op_prices import PRICED_CLASSES, kernel_s
from planner.documents.profiler_trace import ProfiledOp
from planner.errors import InvalidRequest
from planner.usecases.predict_rows import read_measured_s, read_shape

MATRIX_OPERANDS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0}
"""Number of the first matrix among the operands of the products of PyTorch."""


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """A measured kernel: class, element type, numbers of its shape, and seconds."""

    op: str
    dtype: str
    numbers: dict[str, float]
    time_s: float


def read_csv(text: str, where: str) -> tuple[list[MeasuredKernel], list[str]]:
    """Return the measured kernels of a CSV file with a header, and what is wrong with its other lines."""
    kernels, faults = [], []
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        for row in reader:
            try:
                kernels.append(_read_kernel(row))
            except InvalidRequest as error:
                faults.append(str(error.at(f"{where}: line {reader.line_num}")))
    except csv.Error as error:
        faults.append(f"{where}: line {reader.line_num}: {error}")
    return kernels, faults


def _read_kernel(row: dict[str | None, Any]) -> MeasuredKernel:
    if None in row or None in row.values():
        raise InvalidRequest("number of cells", wanted="one for each column of the header")
    cells = {str(name).strip(): _read_cell(cell) for name, cell in row.items() if cell.strip()}
    op, dtype, numbers = read_shape(cells)
    if op not in PRICED_CLASSES:
        raise InvalidRequest("class of kernels", where="op", got=op, wanted=f"one of {', '.join(PRICED_CLASSES)}")
    return MeasuredKernel(op, dtype, numbers, read_measured_s(cells, "time_s"))


def _read_cell(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell.strip()


def read_trace(ops: Iterable[ProfiledOp]) -> list[MeasuredKernel]:
    """Return the products of a profile whose shapes were recorded."""
    return [kernel for op in ops for kernel in _read_product(op)]


def _read_product(op: ProfiledOp) -> Iterator[MeasuredKernel]:
    first = MATRIX_OPERANDS.get(op.op)
    if first is None or len(op.shapes) < first + 2 or not op.time_s > 0:
        return
    (*batch, m, k), (*_, n) = op.shapes[first : first + 2]
    dtype, rows = op.dtypes[first], {"m": m, "n": n, "k": k}
    if dtype == "f32":
        sizes = {"B": batch[0] if batch else 1, "M": m, "N": n, "K": k}
        yield MeasuredKernel(
            "bmm" if batch else "linear", dtype, {x: float(size) for x, size in sizes.items()}, op.time_s
        )
    elif dtype in ("bf16", "f16") and not batch:
        yield MeasuredKernel("gemm", dtype, {x: float(size) for x, size in rows.items()}, op.time_s)


def fit_ops(hardware: Hardware, kernels: Sequence[MeasuredKernel]) -> FittedCorrections:
    """Fit a correction to each class and element type that was measured."""

    def predict(members: Sequence[MeasuredKernel]) -> Seconds:
        columns = {name: np.array([each.numbers[name] for each in members]) for name in members[0].numbers}
        return kernel_s(hardware, members[0].op, members[0].dtype, columns=columns)

    groups: dict[str, list[MeasuredKernel]] = defaultdict(list)
    for kernel in kernels:
        groups[f"{kernel.op}.{kernel.dtype}"].append(kernel)
    return fit_corrections(groups, predict, lambda kernel: kernel.time_s)
