"""Short SPMD programs for tests: one call with arguments given per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.run.backend import DECLARED, run_dtype
from planner.run.spmd_executor import SpmdRun, run_spmd
from planner.run.undef import PartialArray
from planner.spmd import Cluster, LocalType, LocalValue, SpmdBuilder, SpmdCall, SpmdProgram
from tests.testing.upstream_spmd import Case

Array = Any


def local_type(arrays: Sequence[Array], dtype: str) -> LocalType:
    """Return the common type of each device's array; dims that differ are dynamic."""
    shapes = {np.shape(array.array if isinstance(array, PartialArray) else array) for array in arrays}
    return LocalType(tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)), dtype)


def one_call(
    mesh: str, op: str, arrays: Sequence[Array], dtype: str = "i8", result: str | None = None, **attrs: Any
) -> tuple[SpmdProgram, list[Array]]:
    """Return a program of one call on one operand, and its local tensors."""
    build = SpmdBuilder({"m": Cluster.parse(mesh)}, "m")
    held = [
        each if isinstance(each, PartialArray) else np.array(each, run_dtype(np, dtype, DECLARED)) for each in arrays
    ]
    x = build.argument("x", local_type(held, dtype))
    return build.program(build.call(op, x, dtype=result, **attrs)), held


def run_one(
    mesh: str,
    op: str,
    arrays: Sequence[Array],
    dtype: str = "i8",
    result: str | None = None,
    reducers: Mapping[str, Any] | None = None,
    **attrs: Any,
) -> SpmdRun:
    program, held = one_call(mesh, op, arrays, dtype, result, **attrs)
    return run_spmd(program, {"x": held}, reducers=reducers or {})


def answers(run: SpmdRun, output: int = 0) -> list[Any]:
    """Return each device's result as lists, None where all of it is undefined."""
    return [
        None if held.undefined is not None and held.undefined.all() else held.array.tolist()
        for held in run.outputs[output]
    ]


def build(case: Case) -> SpmdProgram:
    names = tuple(f"a{place}" for place in range(len(case.operands)))
    arguments = tuple((name, LocalValue(kind, "m")) for name, kind in zip(names, case.operands, strict=True))
    results = tuple(f"r{place}" for place in range(len(case.results or ())))
    call = SpmdCall(case.op, names, results, case.results or (), case.attrs)
    return SpmdProgram({"m": Cluster.parse(case.mesh)}, arguments, (call,), results, "m")
