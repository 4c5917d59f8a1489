"""Loops that are not cut in even blocks: blocks widened by a halo, or blocks between given offsets.

An op whose operands and results carry a loop as a plain dim of its own may run it as its operands are cut. Every
device runs its part of the loop, with the halo around it or between its offsets. What lies beyond the ends of the
tensor is undefined, as it is in the operands. So an elementwise op keeps halos and offsets without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.ir.indexing import LoopKind, Option, Rule
from planner.ir.mesh import Mesh
from planner.ir.notation import Dim, Term
from planner.ir.sharding import Shape, Sharding, block_bounds


@dataclass(frozen=True, slots=True)
class LoopPartition:
    """How a loop is cut: elements before and after every block, or the offsets of the blocks."""

    halo: tuple[int, int] = (0, 0)
    offsets: tuple[int, ...] = ()


LoopPartitions = tuple[tuple[str, LoopPartition], ...]


def partitioned_sharding(sharding: Sharding, term: Term, cuts: LoopPartitions, *, shape: Shape, mesh: Mesh) -> Sharding:
    """Return the sharding of an operand or result whose split dims are cut as their loops in `cuts` are.

    Dims of loops that are not in `cuts` keep even blocks, and the halo that a window reads.
    """
    if not cuts:
        return sharding
    cut_of = {dim: dict(cuts).get(_single_loop(term[dim]), _window_halo(sharding, dim)) for dim in sharding.split_dims}
    if not any(cut != LoopPartition() for cut in cut_of.values()):
        return sharding
    if any(cut.offsets for cut in cut_of.values()):
        blocks = {dim: _block_offsets(shape[dim], mesh.group_size(sharding.split_axes[dim])) for dim in cut_of}
        return replace(sharding, sharded_dims_offsets=tuple(cut.offsets or blocks[d] for d, cut in cut_of.items()))
    return replace(sharding, halo_sizes=tuple(size for cut in cut_of.values() for size in cut.halo))


def _window_halo(sharding: Sharding, dim: int) -> LoopPartition:
    before, after = sharding.halo_or_offsets(dim) or (0, 0)
    return LoopPartition((before, after))


def _block_offsets(size: int, parts: int) -> tuple[int, ...]:
    start, _ = block_bounds(size, parts, np.arange(parts + 1))
    return tuple(start.tolist())


def find_loop_partitions(rule: Rule, option: Option, results: Sequence[Sharding], *, mesh: Mesh) -> LoopPartitions:
    """Return how the loops must be cut for an op to leave its results as they should be, as far as it can.

    No sharding has both offsets and halos. An op with results of both kinds keeps the offsets, but an op whose windows
    read halos cannot keep offsets: it runs in even blocks, and its results are resharded.
    """
    cuts: dict[str, LoopPartition] = {}
    for term, sharding in zip(rule.results, results, strict=True):
        for dim in sharding.split_dims:
            sizes, name = sharding.halo_or_offsets(dim), _single_loop(term[dim])
            if sizes and name in find_plain_loops(rule):
                cuts[name] = (
                    LoopPartition(offsets=sizes)
                    if sharding.sharded_dims_offsets
                    else LoopPartition(halo=(sizes[0], sizes[1]))
                )
    # One sharding has halos or offsets, never both.
    reads_halos = any(rule.read_sharding(operand, option, mesh).halo_sizes for operand in rule.windows)
    with_offsets = not reads_halos and any(cut.offsets for cut in cuts.values())
    return tuple(sorted((name, cut) for name, cut in cuts.items() if bool(cut.offsets) == with_offsets))


def find_plain_loops(rule: Rule) -> set[str]:
    """Return the parallel loops that are dims of their own in every term."""
    dims = [dim for term in (*rule.operands, *rule.results) for dim in term]
    combined = {loop for dim in dims if not _single_loop(dim) for loop in dim.loops}
    return {loop.name for loop in rule.loops if loop.kind is LoopKind.PARALLEL} - combined


def _single_loop(dim: Dim) -> str:
    """Return the one loop that a dim consists of, or an empty string."""
    return dim.loops[0] if len(dim.loops) == 1 and not dim.joined and not dim.coefficients else ""
