"""Validation of a program: run on every logical device it must equal the graph run whole, and counts must agree.

A step of several micro-batches runs all of them, each on its own data, and equals the graph that does so whole.

What the program recomputes is computed once when the graph runs whole (`planner.ir.rematerialization`).

Inputs come from a seed (`planner.run.inputs`); every shard of every output is compared with its part of the whole
(`planner.run.compare`). Bytes received and peak memory are counted device by device and compared with
`planner.ir.accounting`. Where something differs, the program runs once more to find where it began
(`planner.run.first_difference`). Under the backends mpi and nccl every device is a process (`planner.run.mpi`), and
the graph runs whole in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from planner.errors import InvalidRequest, RunFailed
from planner.ir.accounting import Accounting
from planner.ir.dtypes import is_float
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.rematerialization import drop_all_clones
from planner.ops import OPS
from planner.run.backend import BACKENDS, HALF, PRECISIONS, ROUNDED, array_module
from planner.run.compare import measure_output_error
from planner.run.executor import Execution, Progress, run_program, run_whole
from planner.run.first_difference import Difference, find_first_difference, find_first_miscount, find_first_output
from planner.run.inputs import random_inputs, random_later_data
from planner.run.memory_check import check_memory
from planner.run.mpi import check_mpi, run_over_mpi
from planner.run.nccl import check_gpus
from planner.run.shrink import FEW_DEVICES, FEW_MICROBATCHES, shrink, shrink_mesh

Array = Any
TOLERANCE = {"f64": 1e-10, "f32": 1e-5, HALF: 1e-2}
ROUNDED_TOLERANCE = {"f64": 1e-10, "f32": 1e-5, "f16": 4 * 2.0**-10, "bf16": 4 * 2.0**-7}
"""By the coarsest float in the graph: for half precision, four times the distance from 1 to the next number."""
SHRINK = ("auto", "none")
MAX_DEVICES = 1024
MAX_RUN_INSTRUCTIONS = 1 << 20
"""Instructions of all devices together above which a program is run on a smaller mesh: minutes, and gigabytes."""
MAX_RANKS = 64
OVER_MPI = ("mpi", "nccl")


@dataclass(frozen=True)
class Verdict:
    """`verdict` is equal, different, or structural; bytes are those of the device that receives or holds most.

    Structural: the program has ops that are known by their rule alone (`not_run`), so its layouts and sizes are
    checked, but its numbers were not run and nothing was counted. `difference` is where a difference begins.
    """

    verdict: str
    max_relative_error: float | None
    counted_bytes: int | None
    predicted_bytes: int
    counted_peak_bytes: int | None
    predicted_peak_bytes: int
    devices: int
    backend: str
    precision: str
    shrunk: bool
    seed: int
    not_run: tuple[str, ...] = ()
    difference: Difference | None = None


def validate(
    program: Program,
    backend: str = "numpy",
    shrinking: str = "auto",
    precision: str = "f64",
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Verdict:
    """Run a program against its graph. Raises RunFailed where it cannot be run, InvalidRequest for a bad option."""
    check_backend(backend, shrinking, precision, mesh=program.mesh)
    begin = _report_beginning(program, on_progress)
    small = shrink(_shrink_large_mesh(program), begin) if shrinking == "auto" else program
    verdict = _structural_verdict(small, backend, precision, seed=seed, shrunk=small is not program)
    return verdict if verdict.not_run else _compare(verdict, small, on_progress)[0]


def _report_beginning(program: Program, on_progress: Progress | None) -> Callable[[], None]:
    """Return what reports that no op has run yet, so that a deadline is kept while the run is prepared."""
    return partial(on_progress or (lambda _done, _total: None), 0, len(program.graph.ops))


def _shrink_large_mesh(program: Program) -> Program:
    """Return the program on fewer devices where it has too many to run, or too many instructions for so many.

    Raises InvalidRequest where it has too many devices and does not fit fewer.
    """
    repeated, once = program.loop_end, len(program.instructions) - program.loop_end
    instructions = repeated * min(program.graph.microbatches, FEW_MICROBATCHES) + once
    devices = MAX_RUN_INSTRUCTIONS // max(instructions, 1)
    if program.mesh.devices <= min(devices, MAX_DEVICES):
        return program
    try:
        return shrink_mesh(program, min(devices, FEW_DEVICES))
    except InvalidRequest:
        if program.mesh.devices > MAX_DEVICES:
            raise
        return program


def execute(program: Program, backend: str, precision: str, *, seed: int = 0) -> tuple[Verdict, Execution]:
    """Run a program as it is, and return the verdict, and what the devices held and counted.

    All of its ops must have an array function.
    """
    check_backend(backend, "none", precision, mesh=program.mesh)
    return _compare(_structural_verdict(program, backend, precision, seed=seed, shrunk=False), program, None)


def check_backend(backend: str, shrinking: str, precision: str, *, mesh: Mesh) -> Any:
    """Return the array module of a run, after checking its options before anything is planned.

    Raises InvalidRequest for a bad option or too many devices, and RunFailed for a backend that cannot be used.
    """
    precisions = (*PRECISIONS, ROUNDED, HALF) if backend == "cupy" else (*PRECISIONS, ROUNDED)
    for what, got, known in (("shrink", shrinking, SHRINK), ("precision", precision, precisions)):
        if got not in known:
            raise InvalidRequest(what, got=got, wanted=f"one of {', '.join(known)}")
    if mesh.devices > MAX_DEVICES and shrinking == "none":
        wanted = f"at most {MAX_DEVICES}, or --shrink auto"
        raise InvalidRequest("too many logical devices to run", got=mesh.devices, wanted=wanted)
    if backend not in BACKENDS:
        raise RunFailed("unknown backend", got=backend, wanted=f"one of {', '.join(BACKENDS)}")
    if backend in OVER_MPI:
        if mesh.devices > MAX_RANKS:
            raise InvalidRequest("too many processes on one machine", got=mesh.devices, wanted=f"at most {MAX_RANKS}")
        check_mpi()
        if backend == "nccl":
            check_gpus(array_module("cupy"), mesh.devices)
        return np
    return array_module(backend)


def _structural_verdict(program: Program, backend: str, precision: str, *, seed: int, shrunk: bool) -> Verdict:
    """Return what is known of a program before it runs."""
    account = Accounting(program)
    return Verdict(
        verdict="structural",
        max_relative_error=None,
        counted_bytes=None,
        predicted_bytes=int(account.received.sum(axis=0).max()),
        counted_peak_bytes=None,
        predicted_peak_bytes=int(account.live.max()),
        devices=program.mesh.devices,
        backend=backend,
        precision=precision,
        shrunk=shrunk,
        seed=seed,
        not_run=tuple(sorted({op.op for op in program.graph.ops} - OPS.keys())),
    )


def _compare(verdict: Verdict, program: Program, on_progress: Progress | None) -> tuple[Verdict, Execution]:
    """Return the verdict after running the program. Raises RunFailed where memory runs out."""
    try:
        return _run_and_compare(verdict, program, on_progress)
    except MemoryError as error:  # cupy's is one too
        raise RunFailed(
            "out of memory", where=f"backend {verdict.backend}", got=str(error), wanted="--shrink auto"
        ) from error


def _run_and_compare(verdict: Verdict, program: Program, on_progress: Progress | None) -> tuple[Verdict, Execution]:
    precision, tolerance = verdict.precision, rounding_tolerance(program.graph, verdict.precision)
    xp = np if verdict.backend in OVER_MPI else array_module(verdict.backend)
    check_memory(program, xp, precision)
    begin = _report_beginning(program, on_progress)
    arrays = random_inputs(program.graph, xp, precision, seed=verdict.seed, on_input=begin)
    later = random_later_data(program.graph, xp, precision, seed=verdict.seed)
    with np.errstate(all="ignore"):  # what is not finite must be so on both sides
        whole = run_whole(
            drop_all_clones(program.graph), arrays, xp, precision=precision, later=later, on_progress=on_progress
        )
        if verdict.backend in OVER_MPI:
            done = run_over_mpi(program, precision, verdict.seed, backend=verdict.backend, on_wait=begin)
        else:
            done = run_program(program, arrays, xp, precision=precision, on_progress=on_progress, later=later)
        error = _largest_error(program, whole, done, xp=xp)
        # Where the numbers differ too, the place where they begin to says more than a count.
        difference = find_first_miscount(program, done)
        if error > tolerance:
            began = find_first_difference(
                program, arrays, whole, xp=xp, precision=precision, tolerance=tolerance, later=later
            )
            difference = began or difference or find_first_output(program, whole, done, xp=xp, tolerance=tolerance)
    compared = replace(
        verdict,
        verdict="equal" if error <= tolerance and difference is None else "different",
        max_relative_error=error,
        counted_bytes=int(done.received.sum(axis=0).max()),
        counted_peak_bytes=int(done.peak.max()),
        difference=difference,
    )
    return compared, done


def rounding_tolerance(graph: Graph, precision: str) -> float:
    """Return the largest error that rounding explains; with "rounded", the coarsest float decides.

    Raises InvalidRequest for f8, whose numbers lie too far apart for a comparison.
    """
    if precision != ROUNDED:
        return TOLERANCE[precision]
    floats = sorted({kind.dtype for kind in graph.types.values() if is_float(kind.dtype)})
    if coarse := [dtype for dtype in floats if dtype not in ROUNDED_TOLERANCE]:
        raise InvalidRequest("precision rounded", where=f"values of {coarse[0]}", wanted=f"{' or '.join(PRECISIONS)}")
    return max((ROUNDED_TOLERANCE[dtype] for dtype in floats), default=0.0)


def _largest_error(program: Program, whole: Mapping[str, Array], done: Execution, *, xp: Any) -> float:
    outputs = enumerate(program.graph.outputs)
    shards = [[held[number] for held in done.outputs] for number in range(len(program.outputs))]
    return max(
        measure_output_error(program, number, whole[value], shards=shards[number], xp=xp) for number, value in outputs
    )
