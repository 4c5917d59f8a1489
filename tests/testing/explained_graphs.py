"""Graphs for the tests of `explain`."""

from __future__ import annotations

from collections.abc import Callable

from planner.ir.graph import Graph
from tests.testing import small_graphs

GRAPHS = [
    small_graphs.product_and_relu,
    small_graphs.shared_input,
    small_graphs.shared_result,
    small_graphs.square,
    small_graphs.two_results,
    small_graphs.one_unread_result,
    small_graphs.vectors,
    small_graphs.partial_sums,
    small_graphs.output_twice,
    small_graphs.read_and_returned,
]


Make = Callable[[], Graph]
