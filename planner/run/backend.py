"""Array modules: numpy, or cupy where there is a GPU."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from planner.errors import RunFailed
from planner.ir.dtypes import is_float, is_integer, is_unsigned

MODULES = ("numpy", "cupy")
BACKENDS = (*MODULES, "mpi", "nccl")
"""numpy and cupy run logical devices in one process; mpi and nccl run a process per device, on CPUs or on GPUs."""
PRECISIONS = ("f32", "f64")
HALF = "f16"
"""Only offered on a GPU: numpy's products of it are very slow, and neither module has bf16."""
DECLARED = "declared"
ROUNDED = "rounded"
"""Each value in its own dtype, on every backend: half precision is computed in f32, and the result of an op or a
collective is rounded to f16 or bf16."""
_BF16_BITS = 8
"""Bits of the significand, including the implicit leading one."""
_STANDS_FOR = {"bf16": "float32", "f8e4m3": "float32", "f8e5m2": "float32", "index": "int64", "bool": "bool"}


def array_module(name: str) -> ModuleType:
    """Return numpy or cupy. Raises RunFailed for another name, or when cupy finds no GPU."""
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
    """Wait until everything queued on a GPU has run; numpy does not queue."""
    if xp is not np:
        xp.cuda.Device().synchronize()


def to_host(xp: Any, array: Any) -> Any:
    """Return the array in numpy."""
    return array if xp is np else xp.asnumpy(array)


def device_memory(xp: Any) -> int:
    """Return the bytes of memory of the GPU, or of this machine."""
    if xp is not np:
        return int(xp.cuda.Device().mem_info[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def run_dtype(xp: Any, dtype: str, precision: str) -> Any:
    """Return the array dtype in which values declared as `dtype` are computed: every float in `precision`.

    Unsigned integers always have their own dtype, because programs rely on where they wrap around.

    With "declared" that is the value's own dtype, or f32 for floats that numpy lacks; with "rounded" f64 for f64 and
    otherwise f32.
    """
    if precision == ROUNDED and is_float(dtype):
        return xp.dtype("float64" if dtype == "f64" else "float32")
    if precision == DECLARED or is_unsigned(dtype):
        letter, bits = dtype[0], dtype[1:]
        return xp.dtype(_STANDS_FOR.get(dtype) or {"f": "float", "i": "int", "u": "uint"}[letter] + bits)
    if is_float(dtype):
        return xp.dtype({HALF: "float16", "f32": "float32", "f64": "float64"}[precision])
    return xp.dtype("int64" if is_integer(dtype) else "bool")


def round_to_dtype(xp: Any, array: Any, dtype: str, *, precision: str) -> Any:
    """Return the array rounded to values of `dtype`. It only changes in "rounded" half precision."""
    if precision != ROUNDED or dtype not in ("f16", "bf16"):
        return array
    if dtype == "f16":
        return array.astype("float16").astype("float32")
    significand, exponent = xp.frexp(array)  # rint rounds half to even, as bf16 does; exponents are f32's
    return xp.ldexp(xp.rint(xp.ldexp(significand, _BF16_BITS)), exponent - _BF16_BITS).astype("float32")
