"""Random graphs with halos and offsets, and the oracle of what each device holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from tests.testing.layout_oracle import agree, box, shard_array, unshard_array
from tests.testing.random_graphs import random_graph
from tests.testing.seeds import seeds

SEEDS = seeds(60)
# conformance 27, conformance 29: mesh, shape, sharding
HELD = [
    ("4", (8, 16), Sharding(((0,),), halo_sizes=(1, 2))),
    ("4", (4, 14), Sharding(((), (0,)), sharded_dims_offsets=((0, 2, 5, 9, 14),))),
    ("2x2", (5, 7), Sharding(((1,), (0,)), halo_sizes=(1, 0, 2, 3))),
    ("3x2", (7,), Sharding(((1,),), (0,), Reduction.SUM, halo_sizes=(3, 3))),
    ("3x2", (7,), Sharding(((1,),), (0,), Reduction.MAX, sharded_dims_offsets=((0, 0, 7),))),
]


def test_a_graph_with_halos_is_the_same_graph_with_other_block_boundaries() -> None:
    cut = 0
    for seed in SEEDS:
        (plain, mesh), (graph, _) = random_graph(seed), random_graph(seed, halos=True)
        for before, after in zip(plain.annotations, graph.annotations, strict=True):
            uncut = replace(after.sharding, halo_sizes=(), sharded_dims_offsets=())
            assert replace(after, sharding=uncut) == before
            after.sharding.checked(graph.types[after.value].shape, mesh)
            cut += after.sharding != uncut
    assert cut > len(SEEDS)


@pytest.mark.parametrize(("notation", "shape", "sharding"), HELD)
def test_shards_with_offsets_reassemble_the_tensor(notation: str, shape: tuple[int, ...], sharding: Sharding) -> None:
    mesh, whole = Mesh.parse(notation), np.arange(float(np.prod(shape))).reshape(shape)
    layout = sharding.complete(len(shape), mesh)
    shards = shard_array(whole, layout, mesh, np.random.default_rng(0))
    assert [list(shard.shape) for shard in shards] == [
        [stop - start for start, stop in box(layout, shape, mesh, device)] for device in range(mesh.devices)
    ]
    assert np.allclose(unshard_array(shards, layout, shape, mesh), whole)


@pytest.mark.parametrize("reduction", [each for each in Reduction if each.dtype_error("i64") is None])
def test_partial_integers_are_summed_as_integers(reduction: Reduction) -> None:
    mesh, whole = Mesh.parse("3x2"), np.arange(-7, 8)
    layout = Sharding(((1,),), (0,), reduction, halo_sizes=(1, 2))
    shards = shard_array(whole, layout, mesh, np.random.default_rng(0))
    assert agree(unshard_array(shards, layout, (15,), mesh), whole)


def test_a_halo_that_is_not_its_neighbours_is_noticed() -> None:
    mesh, layout = Mesh.parse("4"), HELD[0][2].complete(2, Mesh.parse("4"))
    shards = shard_array(np.arange(128).reshape(8, 16), layout, mesh, np.random.default_rng(0))
    shards[0][0, 0] += 1  # beyond the tensor: means nothing
    unshard_array(shards, layout, (8, 16), mesh)
    shards[1][0, 0] += 1
    with pytest.raises(AssertionError, match="another replica"):
        unshard_array(shards, layout, (8, 16), mesh)
