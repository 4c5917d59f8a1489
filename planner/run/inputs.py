"""Inputs of a graph from a seed.

Floats are normal, those of buffers and of optimizer state positive, as variances and second moments are; integers are
positions, valid in every table they could index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.model.dtypes import is_float, is_integer
from planner.model.graph import Graph
from planner.model.ops import positions
from planner.run.backend import rounded, run_dtype

Array = Any
POSITIVE = ("buffer", "optimizer_state")


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
        arrays[entry.id] = rounded(xp, xp.asarray(fitting).astype(run_dtype(xp, dtype, precision)), dtype, precision)
    return arrays
