"""Seconds of the kernels of a training step, from the fitted classes of kernels (`planner.choose.hardware.op_times`).

A device without fitted classes has the efficiency of products that its profile cites, or the classes of the
devices that were measured. What was measured on one's own machine corrects both. Products of fp8 steps are timed in
bf16 here; the software's constants scale them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from planner.choose.hardware import Hardware
from planner.choose.hardware.efficiency import PRODUCT
from planner.choose.hardware.op_classes import OP_CLASSES
from planner.choose.hardware.op_times import list_fitted
from planner.choose.hardware.op_transfer import find_kernels
from planner.choose.op_prices import kernel_s
from planner.usecases.steps.shapes import Matrix

ITEMSIZES = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 2}
"""Bytes of an element of activations, by the element type of products."""


def product_s(hardware: Hardware, dtype: str, sizes: tuple[float, float, float]) -> float:
    """Return the seconds of a product [m, k] [k, n], given m, n, k."""
    m, n, k = (max(1.0, each) for each in sizes)
    op = "linear" if dtype == "f32" else "gemm"
    is_measured = hardware.op_times in list_fitted() or f"{op}.{dtype}" in hardware.op_corrections
    if PRODUCT in hardware.efficiency and not is_measured:
        moved = ITEMSIZES[dtype] * (m * n + m * k + k * n)
        return hardware.op_s("linear", dtype, 2 * m * n * k, moved=moved, kind=PRODUCT)
    if op == "linear":
        return _kernel_s(hardware, op, dtype, (("B", 1.0), ("M", m), ("N", n), ("K", k)))
    return _kernel_s(hardware, op, dtype, (("m", m), ("n", n), ("k", k)))


def linear_s(hardware: Hardware, dtype: str, tokens: float, *, matrices: Sequence[Matrix]) -> tuple[float, float]:
    """Return the seconds of the forward products of some tokens with matrices, and of their two backward products."""
    forward = sum(product_s(hardware, dtype, (tokens, n, k)) for n, k in matrices)
    backward = sum(
        product_s(hardware, dtype, (tokens, k, n)) + product_s(hardware, dtype, (k, n, tokens)) for n, k in matrices
    )
    return forward, backward


def attention_s(hardware: Hardware, dtype: str, **sizes: float) -> float:
    """Return the seconds of causal attention as one forward kernel; sizes as the columns of `context_attention`."""
    columns = dict(OP_CLASSES["context_attention"].optional) | sizes
    return _kernel_s(hardware, "context_attention", dtype, tuple(sorted(columns.items())))


@lru_cache(maxsize=1 << 16)
def _kernel_s(hardware: Hardware, op: str, dtype: str, sizes: tuple[tuple[str, float], ...]) -> float:
    columns = {name: np.array([size]) for name, size in sizes}
    own = hardware.op_corrections.get(f"{op}.{dtype}")
    if own is None:
        return float(find_kernels(hardware, op, dtype).seconds(columns)[0])
    # A correction was fitted to what `kernel_s` predicts.
    return float(own.apply(kernel_s(hardware, op, dtype, columns=columns)[0]))
