"""The mesh axes that split a dim evenly, where a format cannot express other blocks."""

from __future__ import annotations

from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes


def even_split_axes(axes: Axes, size: int, mesh: Mesh) -> Axes:
    """Return as many of the axes, from the major end, as divide the dim."""
    while size % mesh.group_size(axes):
        axes = axes[:-1]
    return axes
