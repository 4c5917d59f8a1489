"""Comparison of shards with the whole array that they are parts of.

The error is the largest difference relative to the largest magnitude of the whole. Terms of a partial value are first
combined by its reduction. Halo elements beyond the tensor's ends are not compared. Elements that are not finite must
be the same on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import RunFailed
from planner.ir.program import Program
from planner.ir.sharding import held_bounds
from planner.run.collectives import Reducer, combine_terms

Array = Any


def measure_output_error(program: Program, number: int, whole: Array, *, shards: Sequence[Array], xp: Any) -> float:
    """Return the largest relative difference of any shard of an output from its part of the whole.

    Raises RunFailed for an output without a finite element.
    """
    if not xp.isfinite(whole.astype("float64")).any():
        where = f"output {program.graph.outputs[number]!r}"
        raise RunFailed("the graph run whole makes no finite element", where=where, wanted="numbers to compare")
    return max(worst for worst, _, _ in find_differences(program, program.outputs[number], whole, shards=shards, xp=xp))


def find_differences(
    program: Program, name: str, whole: Array, *, shards: Sequence[Array], xp: Any
) -> Iterator[tuple[float, int, tuple[Array, Array]]]:
    """Yield, for every group that holds the terms of a shard, the error, the group's first device, and a pair of
    arrays.

    The pair is what the group holds and what it should hold. Shards of another shape differ infinitely.
    """
    want, held = whole.astype("float64"), program.values[name]
    finite = xp.abs(want.reshape(-1)[xp.isfinite(want).reshape(-1)])
    scale = (float(finite.max()) if finite.size else 0.0) or 1.0
    reducer = Reducer.of(xp, held.sharding.reduction)
    boxes = held_bounds(held.sharding, want.shape, program.mesh)
    for group in program.mesh.groups(held.sharding.partial).tolist():
        terms, box = [shards[device] for device in group], boxes[group[0]]
        if any(term.shape != tuple((box[:, 1] - box[:, 0]).tolist()) for term in terms):
            yield math.inf, group[0], (terms[0], want)
            continue
        pair = _clip_to_tensor(combine_terms(xp, reducer, terms).astype("float64"), want, box)
        yield _difference(*pair, xp) / scale, group[0], pair


def _clip_to_tensor(shard: Array, whole: Array, box: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return what a shard held at a box, and the whole, have inside the tensor."""
    ends = zip(box.tolist(), whole.shape, strict=True)
    inside = [(min(max(low, 0), size), min(high, size), low) for (low, high), size in ends]
    here = tuple(slice(low - start, high - start) for low, high, start in inside)
    return shard[here], whole[tuple(slice(low, high) for low, high, _ in inside)]


def _difference(got: Array, wanted: Array, xp: Any) -> float:
    got, wanted = got.reshape(-1), wanted.reshape(-1)
    # Equal infinities and nans on both sides are no difference; their difference would be nan.
    alike = (got == wanted) | (xp.isnan(got) & xp.isnan(wanted))
    got, wanted = got[~alike], wanted[~alike]
    if not (xp.isfinite(got).all() and xp.isfinite(wanted).all()):
        return math.inf
    return float(xp.abs(got - wanted).max()) if got.size else 0.0
