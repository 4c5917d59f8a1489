"""Which mesh axes an option may put on a loop on their own.

The shardings of a tensor grow with the power of the number of axes, and the orders of axes in one list with its
factorial. Up to MAX_ORDERED_AXES axes of more than one device, every list of them is an option. Up to MAX_UNITS, every
set of them in the mesh's order. Beyond, adjacent axes are joined until MAX_UNITS units are left, and the axes of a unit
split the same dim: at each step the two neighbours that join the fewest devices, those on links of one name first.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from math import prod

from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes

MAX_ORDERED_AXES = 3
MAX_UNITS = 4
Units = tuple[Axes, ...]


def list_units(mesh: Mesh) -> Units:
    """Return the sets of mesh axes that are put on loops as one; axes of one device split nothing and are left out."""
    units: list[Axes] = [(axis,) for axis, size in enumerate(mesh.shape) if size > 1]
    while len(units) > MAX_UNITS:
        pairs = list(pairwise(units))
        place = min(range(len(pairs)), key=lambda at: _rank_join(*pairs[at], mesh))
        units[place : place + 2] = [units[place] + units[place + 1]]
    return tuple(units)


def _rank_join(left: Axes, right: Axes, mesh: Mesh) -> tuple[bool, int]:
    links = {mesh.axes[axis].link for axis in (*left, *right)}
    return len(links) > 1, prod(mesh.shape[axis] for axis in (*left, *right))


def takes_any_order(units: Units) -> bool:
    """Return whether the axes of one loop or dim are tried in every order, or else only in the mesh's own."""
    return len(units) <= MAX_ORDERED_AXES


def combine_units(units: Units) -> list[Axes]:
    """List every set of axes that units make up, in the mesh's order."""
    sets = (some for n in range(1, len(units) + 1) for some in combinations(units, n))
    return [sum(some, ()) for some in sets]
