"""The shardings of a tensor, and the exact basis moves between them.

Of a dim that is split evenly wherever it can be, every block nests in every larger one: what matters is which sets of
mesh axes may split it. So they are remembered for all tensors and meshes of which that is the same; of a dim that is
split unevenly, its size and the mesh count too. The time of a move depends on the collective and on bytes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.options import DivisibleAxes, divisible_axes, list_layouts
from planner.ir.basis_moves import list_basis_moves
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Reduction, Shape, Sharding

UNREACHABLE = 1 << 60
MAX_CACHED_GRAPHS = 128
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SplitShape:
    """A shape on a mesh, which are any of those that are split alike; `reductions` are those of partial shardings.

    `uneven`: the sizes of dims of which some blocks are uneven (of others 0), and where there are such the mesh.
    """

    units: AxisUnits
    divisible_axes: DivisibleAxes
    reductions: tuple[Reduction, ...]
    uneven: tuple[Shape, Mesh] | None
    shape: Shape = field(compare=False)
    mesh: Mesh = field(compare=False)

    @classmethod
    def of(
        cls, shape: Shape, reductions: tuple[Reduction, ...], mesh: Mesh, units: AxisUnits | None = None
    ) -> SplitShape:
        """Return how a shape is split. `units`: the mesh axes that split a dim as one; None: those of the mesh."""
        units = units or AxisUnits.of(mesh)
        found = divisible_axes(shape, mesh, units)
        dims = zip(shape, found, strict=True)
        uneven = tuple(size if any(size % mesh.group_size(some) for some in each) else 0 for size, each in dims)
        return cls(units, found, reductions, (uneven, mesh) if any(uneven) else None, shape, mesh)


@dataclass(frozen=True, eq=False)
class ReshardingGraph:
    """Shardings, and of each the basis moves with the number of the one they lead to.

    As arrays [states, moves], of which some are not `there`: the target, a number for what the time depends on beside
    bytes, and the state whose bytes they are.
    """

    states: tuple[Sharding, ...]
    moves: tuple[tuple[tuple[Collective, int], ...], ...]
    has_move: NDArray[np.bool_]
    target: Integers
    time_key: Integers
    bytes_state: Integers

    @classmethod
    @lru_cache(maxsize=MAX_CACHED_GRAPHS)
    def of(cls, split: SplitShape) -> ReshardingGraph:
        """Of all tensors that are split so."""
        states = _enumerate_states(split)
        index = {state: i for i, state in enumerate(states)}
        in_mesh_order = not split.units.any_order
        ways = tuple(
            tuple(
                (move, index[to])
                for move, to in list_basis_moves(state, split.shape, split.mesh, in_mesh_order=in_mesh_order)
                if to in index
            )
            for state in states
        )
        there = np.zeros((len(states), max(1, *map(len, ways))), bool)
        target, like, sized = (np.zeros(there.shape, np.int64) for _ in range(3))
        target += np.arange(len(states))[:, None]
        numbers: dict[tuple[Kind, Axes], int] = {}
        for i, each in enumerate(ways):
            there[i, : len(each)] = True
            for k, (move, to) in enumerate(each):
                number = numbers.setdefault((move.kind, move.axes), len(numbers))
                target[i, k], like[i, k], sized[i, k] = to, number, i if move.definition.sends else to
        return cls(states, ways, there, target, like, sized)

    def cost(self, held: Integers, kind: TensorType, model: CostModel) -> Integers:
        """[states, moves]: times, given the bytes of every state; UNREACHABLE of those that are not there."""
        cost = np.full(self.has_move.shape, UNREACHABLE, np.int64)
        if self.has_move.any():
            sizes = np.unique(held, return_inverse=True)[1]
            keys = self.time_key[self.has_move] * len(held) + sizes[self.bytes_state[self.has_move]]
            _, first, number = np.unique(keys, return_index=True, return_inverse=True)
            at = np.argwhere(self.has_move)[first].tolist()
            times = [model.move_ps(self.moves[i][k][0], self.states[i], kind) for i, k in at]
            cost[self.has_move] = np.array(times, np.int64)[number]
        return cost


def _enumerate_states(split: SplitShape) -> tuple[Sharding, ...]:
    whole = list_layouts(TensorType(split.shape, "bool"), split.mesh, split.units)
    partials = split.units.combine()
    return (
        *whole,
        *(
            Sharding(state.split_axes, part, reduction)
            for part in partials
            for state in whole
            if not {axis for axes in state.split_axes for axis in axes} & set(part)
            for reduction in split.reductions
        ),
    )
