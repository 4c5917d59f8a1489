"""Loops cut otherwise than in even blocks: widened by a halo, or at given offsets.

An op whose operands and results carry a loop as a plain dim of their own may run it as its operands are cut: every
device its part of the loop, with the halo around it (what lies beyond the ends is undefined, as in the operands) or
between its offsets. An elementwise op then keeps halos and offsets without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.model.indexing import LoopKind, Rule
from planner.model.mesh import Mesh
from planner.model.notation import Dim, Term
from planner.model.sharding import Shape, Sharding, block_bounds


@dataclass(frozen=True, slots=True)
class Cut:
    """Elements before and after every part of a loop, or the offsets of the parts."""

    halo: tuple[int, int] = (0, 0)
    offsets: tuple[int, ...] = ()


Cuts = tuple[tuple[str, Cut], ...]


def cut_sharding(sharding: Sharding, term: Term, cuts: Cuts, shape: Shape, mesh: Mesh) -> Sharding:
    """The sharding of an operand or result, its split dims cut as their loops are; the others in even blocks."""
    found = {dim: dict(cuts).get(_loop(term[dim]), Cut()) for dim in sharding.split_dims} if cuts else {}
    if not any(cut != Cut() for cut in found.values()):
        return sharding
    if any(cut.offsets for cut in found.values()):
        blocks = {dim: _block_offsets(shape[dim], mesh.group_size(sharding.split_axes[dim])) for dim in found}
        return replace(sharding, sharded_dims_offsets=tuple(cut.offsets or blocks[d] for d, cut in found.items()))
    return replace(sharding, halo_sizes=tuple(size for cut in found.values() for size in cut.halo))


def _block_offsets(size: int, parts: int) -> tuple[int, ...]:
    start, _ = block_bounds(size, parts, np.arange(parts + 1))
    return tuple(start.tolist())


def cuts_of(rule: Rule, results: Sequence[Sharding]) -> Cuts:
    """How the loops are cut under which an op leaves its results as they are to be, as far as it can.

    No sharding has both offsets and halos: an op with results of both kinds keeps the offsets.
    """
    found: dict[str, Cut] = {}
    for term, sharding in zip(rule.results, results, strict=True):
        for dim in sharding.split_dims:
            ends, name = sharding.cut(dim), _loop(term[dim])
            if ends and name in plain(rule):
                found[name] = Cut(offsets=ends) if sharding.sharded_dims_offsets else Cut(halo=(ends[0], ends[1]))
    offset = {name: cut for name, cut in found.items() if cut.offsets}
    return tuple(sorted((offset or found).items()))


def plain(rule: Rule) -> set[str]:
    """Parallel loops that are dims of their own wherever they stand."""
    dims = [dim for term in (*rule.operands, *rule.results) for dim in term]
    bound = {loop for dim in dims if not _loop(dim) for loop in dim.loops}
    return {loop.name for loop in rule.loops if loop.kind is LoopKind.PARALLEL} - bound


def _loop(dim: Dim) -> str:
    """The loop that a dim is, or nothing."""
    return dim.loops[0] if len(dim.loops) == 1 and not dim.joined and not dim.coefficients else ""
