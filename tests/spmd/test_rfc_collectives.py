"""The RFC's collectives on sharded tensors: the sharding of their results."""

from __future__ import annotations

import pytest

from planner.errors import InvalidSharding
from planner.ir.collectives import Kind
from planner.ir.sharding import Sharding
from planner.spmd.rfc_collectives import apply_per_dim, apply_reduction


def test_the_rfc_gathers_only_the_tail_of_a_list() -> None:
    """conformance 42"""
    source = Sharding(((), (), (0, 1, 2)))
    assert apply_per_dim(Kind.ALL_GATHER, source, [[], [], [1, 2]])[0] == Sharding(((), (), (0,)))
    with pytest.raises(InvalidSharding, match="axes are not the tail of the dim"):
        apply_per_dim(Kind.ALL_GATHER, Sharding(((), (1, 0))), [[], [1]])  # erratum 10
    with pytest.raises(InvalidSharding, match=r"more lists than dims \(got 3; wanted at most 2\)"):
        apply_per_dim(Kind.ALL_GATHER, Sharding(((), (1, 0))), [[], [], []])


def test_all_reduce_leaves_the_other_partial_axes() -> None:
    """conformance 43"""
    source = Sharding(((),), (0, 1))
    assert apply_reduction(Kind.ALL_REDUCE, source, [0])[0] == Sharding(((),), (1,))


def test_local_split_appends_axes_not_yet_used() -> None:
    """conformance 45"""
    by_rows = Sharding(((1,), ()))
    assert apply_per_dim(Kind.ALL_SLICE, Sharding(((), (1,), ())), [[], [], [0]])[0].split_axes == ((), (1,), (0,))
    assert apply_per_dim(Kind.ALL_SLICE, by_rows, [[0]])[0] == Sharding(((1, 0), ()))
    assert apply_per_dim(Kind.ALL_SLICE, by_rows, [[], [0]])[0] == Sharding(((1,), (0,)))
    with pytest.raises(InvalidSharding, match="mesh axis duplicated"):
        apply_per_dim(Kind.ALL_SLICE, Sharding(((1,), ())), [[], [1]])


def test_reduce_scatter_appends_to_the_tensor_axis() -> None:
    """conformance 51"""
    source = Sharding(((), (), ()), (0,))
    assert apply_reduction(Kind.REDUCE_SCATTER, source, [0], tensor_axis=2)[0] == Sharding(((), (), (0,)))
