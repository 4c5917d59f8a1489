"""Loops cut otherwise than in even blocks: widened by a halo, or at given offsets.

An op whose operands and results carry a loop as a plain dim of their own may run it as its operands are cut: every
device its part of the loop, with the halo around it (what lies beyond the ends is undefined, as in the operands) or
between its offsets. An elementwise op then keeps halos and offsets without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.ir.indexing import LoopKind, Rule
from planner.ir.mesh import Mesh
from planner.ir.notation import Dim, Term
from planner.ir.sharding import Shape, Sharding, block_bounds


@dataclass(frozen=True, slots=True)
class LoopPartition:
    """Elements before and after every part of a loop, or the offsets of the parts."""

    halo: tuple[int, int] = (0, 0)
    offsets: tuple[int, ...] = ()


LoopPartitions = tuple[tuple[str, LoopPartition], ...]


def partitioned_sharding(sharding: Sharding, term: Term, cuts: LoopPartitions, *, shape: Shape, mesh: Mesh) -> Sharding:
    """The sharding of an operand or result, its split dims cut as their loops are; the others in even blocks."""
    found = (
        {dim: dict(cuts).get(_single_loop(term[dim]), LoopPartition()) for dim in sharding.split_dims} if cuts else {}
    )
    if not any(cut != LoopPartition() for cut in found.values()):
        return sharding
    if any(cut.offsets for cut in found.values()):
        blocks = {dim: _block_offsets(shape[dim], mesh.group_size(sharding.split_axes[dim])) for dim in found}
        return replace(sharding, sharded_dims_offsets=tuple(cut.offsets or blocks[d] for d, cut in found.items()))
    return replace(sharding, halo_sizes=tuple(size for cut in found.values() for size in cut.halo))


def _block_offsets(size: int, parts: int) -> tuple[int, ...]:
    start, _ = block_bounds(size, parts, np.arange(parts + 1))
    return tuple(start.tolist())


def find_loop_partitions(rule: Rule, results: Sequence[Sharding]) -> LoopPartitions:
    """How the loops are cut under which an op leaves its results as they are to be, as far as it can.

    No sharding has both offsets and halos: an op with results of both kinds keeps the offsets.
    """
    found: dict[str, LoopPartition] = {}
    for term, sharding in zip(rule.results, results, strict=True):
        for dim in sharding.split_dims:
            ends, name = sharding.halo_or_offsets(dim), _single_loop(term[dim])
            if ends and name in find_plain_loops(rule):
                found[name] = (
                    LoopPartition(offsets=ends)
                    if sharding.sharded_dims_offsets
                    else LoopPartition(halo=(ends[0], ends[1]))
                )
    offset = {name: cut for name, cut in found.items() if cut.offsets}
    return tuple(sorted((offset or found).items()))


def find_plain_loops(rule: Rule) -> set[str]:
    """Parallel loops that are dims of their own wherever they stand."""
    dims = [dim for term in (*rule.operands, *rule.results) for dim in term]
    bound = {loop for dim in dims if not _single_loop(dim) for loop in dim.loops}
    return {loop.name for loop in rule.loops if loop.kind is LoopKind.PARALLEL} - bound


def _single_loop(dim: Dim) -> str:
    """The loop that a dim is, or nothing."""
    return dim.loops[0] if len(dim.loops) == 1 and not dim.joined and not dim.coefficients else ""
