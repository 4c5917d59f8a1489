"""The graph of a problem as message passing walks it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.layout import Layout

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """Edges turned so that they lead from the lower to the higher node, and each node's incident edges.

    `classes_of` holds, for both ends of every edge, the class of each strategy of the node there; an edge's ends
    begin in it at `low_start` and `high_start`. Messages are laid out alike.
    """

    layout: Layout
    turned: NDArray[np.bool_]
    low: Integers
    high: Integers
    low_start: Integers
    high_start: Integers
    classes_of: Integers
    rows: Integers
    columns: Integers
    first: Integers
    incident: Integers
    largest: int
    classes: int

    @staticmethod
    def of(layout: Layout) -> Topology:
        turned = layout.source > layout.target
        shift = layout.source_class.size
        classes = np.concatenate([layout.source_class, layout.target_class])
        source_start, target_start = layout.source_start[:-1], layout.target_start[:-1] + shift
        ends = np.concatenate([layout.source, layout.target])
        edges = np.concatenate([np.arange(layout.source.size), np.arange(layout.target.size)])
        counts = np.bincount(ends, minlength=layout.node_start.size - 1)
        return Topology(
            layout=layout,
            turned=turned,
            low=np.where(turned, layout.target, layout.source),
            high=np.where(turned, layout.source, layout.target),
            low_start=np.where(turned, target_start, source_start),
            high_start=np.where(turned, source_start, target_start),
            classes_of=classes,
            rows=np.where(turned, layout.width, layout.height),
            columns=np.where(turned, layout.height, layout.width),
            first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            incident=edges[np.argsort(ends, kind="stable")].astype(np.int64),
            largest=int(np.diff(layout.node_start).max(initial=1)),
            classes=int(max(layout.width.max(initial=1), layout.height.max(initial=1))),
        )

    @property
    def degree(self) -> int:
        """The most edges at one node."""
        return int(np.diff(self.first).max(initial=0))
