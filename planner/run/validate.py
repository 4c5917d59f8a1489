"""The verdict on a program: run on every logical device, it equals the graph run whole, and counts agree.

Inputs come from a seed. Floats are normal, those of buffers and of optimizer state positive, as variances and second
moments are; integers are positions, valid in every table they could index. Every shard of every output is compared
with its part of the whole: the error is the largest difference relative to the largest magnitude of the output. Of an
output left partial the terms that its devices hold are combined first, by its reduction; halo elements beyond the
tensor's ends mean nothing and are passed over. Counted are bytes received and peak memory, device by device, against
`planner.model.accounts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidRequest, RunFailed
from planner.model.accounts import live_bytes, received_bytes
from planner.model.dtypes import is_float, is_integer
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from planner.model.ops import OPS, positions
from planner.model.program import Program
from planner.model.sharding import held_bounds
from planner.run.backend import PRECISIONS, array_module, run_dtype
from planner.run.devices import Execution, Progress, run_program, run_whole
from planner.run.shrink import shrink
from planner.run.transfer import Reducer, Wire, reduced

Array = Any
TOLERANCE = {"f64": 1e-10, "f32": 1e-5}
SHRINK = ("auto", "none")
MAX_DEVICES = 1024
POSITIVE = ("buffer", "optimizer_state")


@dataclass(frozen=True)
class Verdict:
    """`verdict` is equal, different, or structural; bytes are of the device that receives or holds most.

    Structural: the program holds ops known by their rule alone (`not_run`), so its layouts and sizes agree
    throughout, but its numbers were not run and nothing was counted.
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


def validate(
    program: Program,
    backend: str = "numpy",
    shrinking: str = "auto",
    precision: str = "f64",
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Verdict:
    """Run a program against its graph. Raises RunFailed when it cannot be run, InvalidRequest for a bad option."""
    xp = checked_module(backend, shrinking, precision, program.mesh)
    small = shrink(program) if shrinking == "auto" else program
    verdict = _structural(small, backend, precision, seed, small is not program)
    return verdict if verdict.not_run else _compared(verdict, small, xp, on_progress)


def checked_module(backend: str, shrinking: str, precision: str, mesh: Mesh) -> Any:
    """The array module of a run that is possible: known at once, before anything is planned.

    Raises InvalidRequest for a bad option or too many devices, RunFailed for a backend that cannot be used.
    """
    for what, got, known in (("shrink", shrinking, SHRINK), ("precision", precision, PRECISIONS)):
        if got not in known:
            raise InvalidRequest(what, got=got, wanted=f"one of {', '.join(known)}")
    if mesh.devices > MAX_DEVICES:
        raise InvalidRequest("too many logical devices to run", got=mesh.devices, wanted=f"at most {MAX_DEVICES}")
    return array_module(backend)


def _structural(program: Program, backend: str, precision: str, seed: int, shrunk: bool) -> Verdict:
    """What is known of a program before it is run."""
    return Verdict(
        verdict="structural",
        max_relative_error=None,
        counted_bytes=None,
        predicted_bytes=int(received_bytes(program).sum(axis=0).max()),
        counted_peak_bytes=None,
        predicted_peak_bytes=int(live_bytes(program).max()),
        devices=program.mesh.devices,
        backend=backend,
        precision=precision,
        shrunk=shrunk,
        seed=seed,
        not_run=tuple(sorted({op.op for op in program.graph.ops} - OPS.keys())),
    )


def _compared(verdict: Verdict, program: Program, xp: Any, on_progress: Progress | None) -> Verdict:
    """The verdict after running the program, device by device and byte by byte."""
    precision = verdict.precision
    arrays = random_inputs(program.graph, xp, precision, verdict.seed)
    with np.errstate(all="ignore"):  # what is not finite must be so on both sides
        whole = run_whole(program.graph, arrays, xp, precision)
        done = run_program(program, arrays, xp, precision, on_progress)
    error = _largest_error(program, whole, done, xp)
    moved = bool((done.received == received_bytes(program)).all())
    held = bool((done.peak == live_bytes(program).max(axis=0)).all())
    return replace(
        verdict,
        verdict="equal" if error <= TOLERANCE[precision] and moved and held else "different",
        max_relative_error=error,
        counted_bytes=int(done.received.sum(axis=0).max()),
        counted_peak_bytes=int(done.peak.max()),
    )


def _largest_error(program: Program, whole: Mapping[str, Array], done: Execution, xp: Any) -> float:
    shards = [[held[number] for held in done.outputs] for number in range(len(program.outputs))]
    return max(_error(program, number, whole, held, xp) for number, held in enumerate(shards))


def random_inputs(graph: Graph, xp: Any, precision: str, seed: int) -> dict[str, Array]:
    """Whole arrays for every graph input, the same for every backend."""
    random = np.random.default_rng(seed)
    tables = [op.rule.sizes[loop] for op in graph.ops for loop in positions(op).values()]
    highest = min(tables, default=8)
    arrays = {}
    for entry in graph.inputs:
        shape, dtype = entry.type.shape, entry.type.dtype
        integers = random.integers(0, highest if is_integer(dtype) else 2, shape)
        drawn = random.standard_normal(shape) / 2 if is_float(dtype) else integers
        fitting = abs(drawn) if entry.kind in POSITIVE else drawn
        arrays[entry.id] = xp.asarray(fitting).astype(run_dtype(xp, dtype, precision))
    return arrays


def _error(program: Program, number: int, whole: Mapping[str, Array], shards: list[Array], xp: Any) -> float:
    """Largest difference of any shard of an output (its terms combined) from its part of the whole.

    Elements that are not finite must be the same on both sides. Raises RunFailed for an output without any other.
    """
    want = whole[program.graph.outputs[number]].astype("float64")
    held = program.values[program.outputs[number]]
    finite = xp.abs(want[xp.isfinite(want)])
    if not finite.size:
        where = f"output {program.graph.outputs[number]!r}"
        raise RunFailed("the graph run whole makes no finite element", where=where, wanted="numbers to compare")
    scale = float(finite.max()) or 1.0
    reducer = Reducer.of(xp, held.sharding.reduction)
    boxes = held_bounds(held.sharding, want.shape, program.mesh)
    worst = 0.0
    for group in program.mesh.groups(held.sharding.partial).tolist():
        terms, box = [shards[device] for device in group], boxes[group[0]]
        if any(term.shape != tuple((box[:, 1] - box[:, 0]).tolist()) for term in terms):
            return math.inf
        total = reduced(xp, Wire(len(group)), reducer, terms, 0)
        worst = max(worst, _difference(*_within(total.astype("float64"), want, box), xp) / scale)
    return worst


def _within(shard: Array, whole: Array, box: NDArray[np.int64]) -> tuple[Array, Array]:
    """What a shard held at a box, and the whole, have inside the tensor."""
    ends = zip(box.tolist(), whole.shape, strict=True)
    inside = [(min(max(low, 0), size), min(high, size), low) for (low, high), size in ends]
    here = tuple(slice(low - start, high - start) for low, high, start in inside)
    return shard[here], whole[tuple(slice(low, high) for low, high, _ in inside)]


def _difference(got: Array, wanted: Array, xp: Any) -> float:
    alike = (got == wanted) | (xp.isnan(got) & xp.isnan(wanted))
    got, wanted = got[~alike], wanted[~alike]
    if not (xp.isfinite(got).all() and xp.isfinite(wanted).all()):
        return math.inf
    return float(xp.abs(got - wanted).max()) if got.size else 0.0
