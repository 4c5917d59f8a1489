"""Finds, optionally verifies, and documents one reshard; the command line and HTTP share it."""

from __future__ import annotations

from typing import Any

from api.options import ReshardOptions
from planner.choose.hardware import Hardware
from planner.documents.reshard import dump_reshard
from planner.ir.graph import TensorType
from planner.reshard.cheapest_path import Objective
from planner.reshard.cross_mesh import PlacedSharding
from planner.usecases.migrate import find_reshard, verify_reshard


def solve_reshard(
    name: str,
    source: PlacedSharding,
    target: PlacedSharding,
    *,
    kind: TensorType,
    profile: Hardware,
    options: ReshardOptions,
) -> dict[str, Any]:
    """Return the document of the cheapest program between two shardings. Raises InvalidRequest where none fits."""
    path = find_reshard(
        source,
        target,
        kind,
        hardware=profile,
        objective=Objective(options.objective),
        limit_bytes=options.memory_limit_bytes,
    )
    verified = verify_reshard(path) if options.verify else None
    return dump_reshard(name, path, verified, scheduled=options.schedule)
