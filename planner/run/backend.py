"""The one seam between array modules: numpy, or cupy where there is a GPU."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from planner.errors import RunFailed
from planner.ir.dtypes import is_float, is_integer

MODULES = ("numpy", "cupy")
BACKENDS = (*MODULES, "mpi", "nccl")
"""One process of logical devices, or a process a device: on CPUs, or each on a GPU of its own."""
PRECISIONS = ("f32", "f64")
HALF = "f16"
"""On a GPU too; numpy's products of it are very slow, and neither module has bf16."""
DECLARED = "declared"
ROUNDED = "rounded"
"""Each value in its own dtype, on every backend: half precision is computed in f32, and what an op or a collective has
made is rounded to f16 or bf16."""
_BF16_BITS = 8
"""Of a number's significand, the leading one among them."""
_STANDS_FOR = {"bf16": "float32", "f8e4m3": "float32", "f8e5m2": "float32", "index": "int64", "bool": "bool"}


def array_module(name: str) -> ModuleType:
    """Numpy or cupy. Raises RunFailed for another name, or when cupy finds no GPU."""
    if name == "numpy":
        return np
    if name != "cupy":
        raise RunFailed("unknown backend", got=name, wanted=f"one of {', '.join(MODULES)}")
    try:
        cupy = import_module("cupy")
        available = bool(cupy.cuda.is_available())
    except Exception as error:  # a broken driver raises its own types, an absent package ImportError
        raise RunFailed("cupy cannot be used", got=str(error), wanted="shardplan[cuda12] or [cuda13]") from error
    if not available:
        raise RunFailed("no GPU", where="backend cupy", wanted="a CUDA device (or --backend numpy)")
    return cupy


def synchronize(xp: Any) -> None:
    """Wait for what was queued on a GPU; numpy has run everything by then."""
    if xp is not np:
        xp.cuda.Device().synchronize()


def to_host(xp: Any, array: Any) -> Any:
    """The array in numpy."""
    return array if xp is np else xp.asnumpy(array)


def device_memory(xp: Any) -> int:
    """Bytes of memory of the GPU, or of this machine."""
    if xp is not np:
        return int(xp.cuda.Device().mem_info[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def run_dtype(xp: Any, dtype: str, precision: str) -> Any:
    """The array dtype in which values declared as `dtype` are computed: every float in `precision`.

    "declared" is the value's own, and f32 for the floats that numpy lacks; "rounded" f64 of f64, and else f32.
    """
    if precision == ROUNDED and is_float(dtype):
        return xp.dtype("float64" if dtype == "f64" else "float32")
    if precision == DECLARED:
        letter, bits = dtype[0], dtype[1:]
        return xp.dtype(_STANDS_FOR.get(dtype) or {"f": "float", "i": "int", "u": "uint"}[letter] + bits)
    if is_float(dtype):
        return xp.dtype({HALF: "float16", "f32": "float32", "f64": "float64"}[precision])
    return xp.dtype("int64" if is_integer(dtype) else "bool")


def round_to_dtype(xp: Any, array: Any, dtype: str, *, precision: str) -> Any:
    """The array with elements that a value declared as `dtype` can have; as it is but in "rounded" half precision."""
    if precision != ROUNDED or dtype not in ("f16", "bf16"):
        return array
    if dtype == "f16":
        return array.astype("float16").astype("float32")
    significand, exponent = xp.frexp(array)  # to the nearest, of two the even one; exponents are f32's
    return xp.ldexp(xp.rint(xp.ldexp(significand, _BF16_BITS)), exponent - _BF16_BITS).astype("float32")
