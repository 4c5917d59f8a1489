"""The strategies of a row over one mesh axis, in letters that other systems' rules can be written in as well.

A placement is `R` (whole), `S0` (dim 0 split) or `Psum`, `Pmax`, ... (partial). A strategy is the placements of an op's
operands and results: `S0,R->S0`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.ops import bind_op

SIZE = 4
MESH = Mesh.parse(str(SIZE))


def way(read: Sequence[str], made: Sequence[str]) -> str:
    return f"{','.join(read)}->{','.join(made)}"


def row_ways(
    op: str, operands: Sequence[TensorType], results: Sequence[TensorType], attrs: Mapping[str, object]
) -> set[str]:
    """Return the placements that an op row permits over one axis, except the fully replicated one."""
    rule = bind_op(op, tuple(operands), tuple(results), attrs=attrs, notation=None)
    found = set()
    for number in range(len(rule.loops)):
        option = tuple((0,) if number == i else () for i in range(len(rule.loops)))
        if rule.is_allowed(option, MESH):
            read = [_letter(rule.operand_sharding(i, option)) for i in range(len(operands))]
            found.add(way(read, [_letter(rule.result_sharding(i, option)) for i in range(len(results))]))
    return found


def _letter(sharding: Sharding) -> str:
    if sharding.partial:
        return f"P{sharding.reduction}"
    return next((f"S{dim}" for dim, axes in enumerate(sharding.split_axes) if axes), "R")
