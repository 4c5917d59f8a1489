"""The graph that a request plans: the step of all its micro-batches, with the pins of its layout."""

from __future__ import annotations

from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.standard_layouts import LayoutName, pin_layout
from planner.rewrite.accumulate import accumulate_gradients


def build_step(
    graph: Graph,
    mesh: Mesh,
    *,
    microbatches: int = 1,
    global_batch: int | None = None,
    layout: LayoutName | None = None,
) -> Graph:
    """Return the graph of a step. Raises the errors of `accumulate_gradients` and `pin_layout`."""
    step = accumulate_gradients(graph, microbatches, global_batch)
    return step if layout is None else pin_layout(step, mesh, layout)
