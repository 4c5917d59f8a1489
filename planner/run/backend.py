"""The one seam between array modules: numpy, or cupy where there is a GPU."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from planner.errors import RunFailed
from planner.model.dtypes import is_float, is_integer

MODULES = ("numpy", "cupy")
BACKENDS = (*MODULES, "mpi", "nccl")
"""One process of logical devices, or a process a device: on CPUs, or each on a GPU of its own."""
PRECISIONS = ("f32", "f64")
HALF = "f16"
"""On a GPU too; numpy's products of it are very slow, and neither module has bf16."""
DECLARED = "declared"
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


def host(xp: Any, array: Any) -> Any:
    """The array in numpy."""
    return array if xp is np else xp.asnumpy(array)


def device_memory(xp: Any) -> int:
    """Bytes of memory of the GPU, or of this machine."""
    if xp is not np:
        return int(xp.cuda.Device().mem_info[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def run_dtype(xp: Any, dtype: str, precision: str) -> Any:
    """The array dtype in which values declared as `dtype` are computed: every float in `precision`.

    "declared" is the value's own, and f32 for the floats that numpy lacks.
    """
    if precision == DECLARED:
        letter, bits = dtype[0], dtype[1:]
        return xp.dtype(_STANDS_FOR.get(dtype) or {"f": "float", "i": "int", "u": "uint"}[letter] + bits)
    if is_float(dtype):
        return xp.dtype({HALF: "float16", "f32": "float32", "f64": "float64"}[precision])
    return xp.dtype("int64" if is_integer(dtype) else "bool")
