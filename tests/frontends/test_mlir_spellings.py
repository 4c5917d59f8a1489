"""Spellings of shardings on which the documents differ: each means the same wherever it stands."""

from __future__ import annotations

import pytest

from planner.frontends.mlir import read_mlir
from planner.ir.sharding import Sharding
from planner.rewrite.propagation.propagate import propagate


@pytest.mark.parametrize("named", ["", "@m, "])
def test_a_type_lists_partial_axes_last_whether_or_not_it_names_the_mesh(named: str) -> None:
    # conformance 26, conformance 39
    text = """mesh.cluster @m(rank = 2, dim_sizes = [2, 2])
    func.func @f(%x: tensor<8x8xf32>, %w: tensor<8x4xf32>) -> tensor<8x4xf32> attributes {mesh_cluster = @m} {
      %0 = "mhlo.dot_general"(%x, %w) {dot_dimension_numbers = #mhlo.dot<lhs_contracting_dimensions = [1],
        rhs_contracting_dimensions = [0]>} : (tensor<8x8xf32>, tensor<8x4xf32>)
        -> tensor<8x4xf32, #mesh.shard<NAMED[[1], [], [0]]>>
      return %0 : tensor<8x4xf32>
    }"""
    graph, mesh = read_mlir(text.replace("NAMED", named))
    assert [(a.value, a.user, a.sharding) for a in graph.annotations] == [("0", None, Sharding(((1,), ()), (0,)))]
    assert propagate(graph, mesh).definition("0") == Sharding(((1,), ()), (0,))
