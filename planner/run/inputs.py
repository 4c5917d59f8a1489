"""Inputs of a graph from a seed, made where they are used.

Element k of an input is drawn by its number alone: splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", 2014) of k, from a state that a digest of the seed and of the input's id begins. That is integer arithmetic
of whole arrays, so every backend draws the same bits on its own device, and nothing is copied there.

Floats are uniform, of mean 0 and deviation 1/2, those of buffers and of optimizer state positive, as variances and
second moments are; integers are positions, valid in every table they could index; flags are mostly true, as in masks
that leave every row something.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

from planner.ir.dtypes import is_float, is_integer
from planner.ir.graph import Graph
from planner.ops import indexed_loops
from planner.run.backend import round_to_dtype, run_dtype

Array = Any
POSITIVE = ("buffer", "optimizer_state")
# Of splitmix64: what the state grows by, then shifts and factors.
GROWTH = 0x9E3779B97F4A7C15
MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31
FALSE_ONCE_IN = 8
# A uniform distribution from -1 to 1 has deviation 1 / sqrt(3).
WIDTH = math.sqrt(3) / 2


def random_inputs(graph: Graph, xp: Any, precision: str, *, seed: int) -> dict[str, Array]:
    """Whole arrays for every graph input, the same for every backend."""
    tables = [op.rule.sizes[loop] for op in graph.ops for loop in indexed_loops(op).values()]
    highest = min(tables, default=8)
    arrays = {}
    for entry in graph.inputs:
        shape, dtype = entry.type.shape, entry.type.dtype
        digest = hashlib.sha256(f"{seed} {entry.id}".encode()).digest()
        bits = splitmix64(xp, int.from_bytes(digest[:8], "little"), math.prod(shape)).reshape(shape)
        if is_float(dtype):
            drawn = (bits >> xp.uint64(11)) * (2 * WIDTH / 2**53) - WIDTH
        elif is_integer(dtype):
            drawn = bits % xp.uint64(highest)
        else:
            drawn = bits % xp.uint64(FALSE_ONCE_IN) != 0
        fitting = abs(drawn) if entry.kind in POSITIVE else drawn
        arrays[entry.id] = round_to_dtype(
            xp, fitting.astype(run_dtype(xp, dtype, precision)), dtype, precision=precision
        )
    return arrays


def splitmix64(xp: Any, start: int, count: int) -> Array:
    """u64[count]: the numbers that follow this state."""
    state = xp.arange(1, count + 1, dtype=xp.uint64)
    state *= xp.uint64(GROWTH)
    state += xp.uint64(start)
    for shift, factor in MIXING:
        state ^= state >> xp.uint64(shift)
        state *= xp.uint64(factor)
    state ^= state >> xp.uint64(LAST_SHIFT)
    return state
