"""Which mesh axes an option may put on a loop on their own.

The shardings of a tensor grow with the power of the number of axes, and the orders of axes in one list with its
factorial. Up to MAX_ORDERED_AXES axes of more than one device, every list of them is an option. Up to MAX_UNITS, every
set of them in the mesh's order. Beyond, adjacent axes are joined until MAX_UNITS units are left, and the axes of a unit
split the same dim: at each step the two neighbours that join the fewest devices, those on links of one name first.

A search may join more axes than it has to (`AxisUnits.join`): what it finds is an option of the larger search too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod

from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes

MAX_ORDERED_AXES = 3
MAX_UNITS = 4


@dataclass(frozen=True, slots=True)
class AxisUnits:
    """The sets of mesh axes that are put on loops as one; axes of one device split nothing and are left out.

    any_order  whether the axes of one loop or dim are tried in every order, or else only in the mesh's own
    """

    units: tuple[Axes, ...]
    any_order: bool

    @classmethod
    def of(cls, mesh: Mesh) -> AxisUnits:
        """Return the units of a mesh, at most MAX_UNITS."""
        axes: tuple[Axes, ...] = tuple((axis,) for axis, size in enumerate(mesh.shape) if size > 1)
        return cls(axes, len(axes) <= MAX_ORDERED_AXES).join(mesh, MAX_UNITS)

    def join(self, mesh: Mesh, most: int) -> AxisUnits:
        """Return at most `most` units: neighbours are joined."""
        units = list(self.units)
        while len(units) > most:
            pairs = list(pairwise(units))
            place = min(range(len(pairs)), key=lambda at: _rank_join(*pairs[at], mesh))
            units[place : place + 2] = [units[place] + units[place + 1]]
        return AxisUnits(tuple(units), self.any_order)

    def combine(self) -> list[Axes]:
        """List every set of axes that units make up, in the mesh's order."""
        count = range(1, len(self.units) + 1)
        return [sum(some, ()) for n in count for some in combinations(self.units, n)]


def _rank_join(left: Axes, right: Axes, mesh: Mesh) -> tuple[bool, int]:
    links = {mesh.axes[axis].link for axis in (*left, *right)}
    # Axes on links of one name lose least by moving together; among these, the smallest unit is made first.
    return len(links) > 1, prod(mesh.shape[axis] for axis in (*left, *right))
