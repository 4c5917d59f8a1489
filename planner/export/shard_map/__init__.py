"""Programs as Python text for jax.shard_map: what every device does, op by op and collective by collective."""

from __future__ import annotations

from planner.export.shard_map.programs import print_shard_map

__all__ = ["print_shard_map"]
