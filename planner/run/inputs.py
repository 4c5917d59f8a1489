"""Random inputs of a graph, drawn from a seed on the device that uses them.

Element k of an input depends on its number alone: splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", 2014) of k, starting from a digest of the seed and of the input's id. That is integer arithmetic on whole
arrays, so every backend draws the same bits on its own device, and nothing is copied there.

Floats are uniform with mean 0 and deviation 1/2; those of buffers and optimizer state are positive, as variances and
second moments are. Integers are positions, valid in every table that they could index. Flags are mostly true, as in
masks that leave every row something.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from planner.ir.dtypes import is_float, is_integer
from planner.ir.graph import Graph, Input
from planner.ops import indexed_loops
from planner.run.backend import round_to_dtype, run_dtype

Array = Any
POSITIVE = ("buffer", "optimizer_state")
# Constants of splitmix64: the increment of the state, then shifts and factors of the mixing.
GROWTH = 0x9E3779B97F4A7C15
MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31
FALSE_ONCE_IN = 8
# A uniform distribution from -1 to 1 has deviation 1 / sqrt(3).
WIDTH = math.sqrt(3) / 2


def random_inputs(
    graph: Graph, xp: Any, precision: str, *, seed: int, on_input: Callable[[], None] = lambda: None
) -> dict[str, Array]:
    """Return whole arrays for every graph input, the same for every backend.

    on_input  called before each is drawn; what it raises ends the work
    """
    return _draw_inputs(graph, _visit(graph.inputs, on_input), xp, precision=precision, seed=str(seed))


def _visit(inputs: Iterable[Input], on_input: Callable[[], None]) -> Iterator[Input]:
    for entry in inputs:
        on_input()
        yield entry


def random_later_data(
    graph: Graph, xp: Any, precision: str, *, seed: int, on_input: Callable[[], None] = lambda: None
) -> list[dict[str, Array]]:
    """Return whole arrays for the data of every micro-batch after the first; `on_input`: as for the first."""
    data = [entry for entry in graph.inputs if entry.id in graph.data]
    return [
        _draw_inputs(graph, _visit(data, on_input), xp, precision=precision, seed=f"{seed} {number}")
        for number in range(1, graph.microbatches)
    ]


def _draw_inputs(graph: Graph, drawn: Iterable[Input], xp: Any, *, precision: str, seed: str) -> dict[str, Array]:
    tables = [op.rule.sizes[loop] for op in graph.ops for loop in indexed_loops(op).values()]
    highest = min(tables, default=8)
    arrays = {}
    for entry in drawn:
        shape, dtype = entry.type.shape, entry.type.dtype
        digest = hashlib.sha256(f"{seed} {entry.id}".encode()).digest()
        bits = splitmix64(xp, int.from_bytes(digest[:8], "little"), math.prod(shape)).reshape(shape)
        if is_float(dtype):
            values = (bits >> xp.uint64(11)) * (2 * WIDTH / 2**53) - WIDTH
        elif is_integer(dtype):
            values = bits % xp.uint64(highest)
        else:
            values = bits % xp.uint64(FALSE_ONCE_IN) != 0
        signed_values = abs(values) if entry.kind in POSITIVE else values
        arrays[entry.id] = round_to_dtype(
            xp, signed_values.astype(run_dtype(xp, dtype, precision)), dtype, precision=precision
        )
    return arrays


def splitmix64(xp: Any, start: int, count: int) -> Array:
    """Return the `count` numbers that follow the state `start`, as u64."""
    state = xp.arange(1, count + 1, dtype=xp.uint64)
    state *= xp.uint64(GROWTH)
    state += xp.uint64(start)
    for shift, factor in MIXING:
        state ^= state >> xp.uint64(shift)
        state *= xp.uint64(factor)
    state ^= state >> xp.uint64(LAST_SHIFT)
    return state
