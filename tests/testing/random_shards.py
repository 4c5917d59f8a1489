"""Reassembly of a program's output from its shards."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.ir.program import Program
from planner.ir.sharding import shard_bounds


def reassembled(program: Program, shards: list[Any], dtype: Any, number: int = 0) -> Any:
    """Return output `number` from each device's shard; replicas must be equal to the last bit."""
    held = program.values[program.outputs[number]]
    whole = np.full(held.type.shape, np.nan, dtype)
    for part, shard in zip(shard_bounds(held.sharding, held.type.shape, program.mesh), shards, strict=True):
        place = tuple(slice(int(low), int(high)) for low, high in part)
        assert ((whole[place] == shard) | np.isnan(whole[place])).all()
        whole[place] = shard
    return whole
