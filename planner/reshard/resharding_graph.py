"""The shardings of a tensor, and the exact basis moves between them.

Where all splits of a dim are even, every block nests in every larger one, and only the sets of mesh axes that may split
the dim matter. The graph is cached for all tensors and meshes that agree in these sets. For a dim that is split
unevenly its size and the mesh are part of the key. The time of a move depends only on the collective and on bytes.
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
    """The cache key of a resharding graph: how a shape may be split on a mesh.

    reductions   those of partial shardings
    uneven       the sizes of dims with uneven blocks (0 for other dims) and the mesh; None where no dim has any
    shape, mesh  any that are split alike
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
        divisible = divisible_axes(shape, mesh, units)
        dims = zip(shape, divisible, strict=True)
        uneven = tuple(size if any(size % mesh.group_size(some) for some in each) else 0 for size, each in dims)
        return cls(units, divisible, reductions, (uneven, mesh) if any(uneven) else None, shape, mesh)


@dataclass(frozen=True, eq=False)
class ReshardingGraph:
    """The shardings of a tensor, and the basis moves from each with the number of the sharding that they lead to.

    The moves are also arrays `[states, moves]`:

    has_move     False where a state has fewer moves
    target       the number of the sharding that a move leads to
    time_key     equal for moves whose times differ by bytes only
    bytes_state  the number of the sharding whose bytes the time depends on
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
        """Return the graph of all tensors that are split alike."""
        states = _enumerate_states(split)
        index = {state: i for i, state in enumerate(states)}
        in_mesh_order = not split.units.any_order
        moves = tuple(
            tuple(
                (move, index[to])
                for move, to in list_basis_moves(state, split.shape, split.mesh, in_mesh_order=in_mesh_order)
                if to in index
            )
            for state in states
        )
        has_move = np.zeros((len(states), max(1, *map(len, moves))), bool)
        target, time_key, bytes_state = (np.zeros(has_move.shape, np.int64) for _ in range(3))
        target += np.arange(len(states))[:, None]
        numbers: dict[tuple[Kind, Axes], int] = {}
        for i, each in enumerate(moves):
            has_move[i, : len(each)] = True
            for k, (move, to) in enumerate(each):
                number = numbers.setdefault((move.kind, move.axes), len(numbers))
                target[i, k], time_key[i, k], bytes_state[i, k] = to, number, i if move.definition.sends else to
        return cls(states, moves, has_move, target, time_key, bytes_state)

    def cost(self, held: Integers, kind: TensorType, model: CostModel) -> Integers:
        """Return the times of moves in ps, `[states, moves]`, UNREACHABLE where there is no move.

        `held` are the bytes of each state. Moves of equal key and equal bytes are priced once.
        """
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
