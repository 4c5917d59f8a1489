"""Prices and messages of a folded problem as those of the unfolded one.

An edge of the folded problem stands for as many equal ones as it counts, and each of them gets an equal share of its
messages; an edge within a class has become part of a node, and gets none. Any messages are valid (solvers/trws.py).
Where layers are alike, to their ends, and use as much at the moments that have a price, these give each node of a class
an equal share of what is left at the folded node: the bound begins near the folded problem's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.choose.fold.interning import ArrayInterner
from planner.choose.fold.quotient_problem import edge_class
from solvers import Problem

Integers = NDArray[np.int64]
Values = NDArray[np.float64]


def prolong_messages(
    whole: Problem, member: Sequence[int], folded: Problem, *, contents: ArrayInterner, messages: Values
) -> Values:
    """Of each strategy at the source of each edge of the whole problem, then at the targets, as `messages` are of the
    folded one; member[v]: the node there of node v."""
    kinds = [edge_class(edge, edge.source, edge.target, contents=contents) for edge in folded.edges]
    first = {kind: e for e, kind in reversed(list(enumerate(kinds)))}
    ends = ((edge, member[edge.source], member[edge.target]) for edge in whole.edges)
    of = np.array([-1 if s == t else first[edge_class(edge, s, t, contents=contents)] for edge, s, t in ends])
    times = np.array([edge.multiplicity for edge in folded.edges])
    sources, targets = np.split(messages, [folded.arrays.source_class.size])
    own, theirs = whole.arrays, folded.arrays
    return np.concatenate(
        [
            _share_messages(own.source_start, theirs.source_start, of, times=times, messages=sources),
            _share_messages(own.target_start, theirs.target_start, of, times=times, messages=targets),
        ]
    )


def _share_messages(starts: Integers, folded: Integers, of: Integers, *, times: Integers, messages: Values) -> Values:
    """At one end of every edge: edge e's values begin at starts[e], those of the folded edge that it is part of, of
    so many, at folded[of[e]]."""
    edge = np.repeat(np.arange(of.size), np.diff(starts))
    shared = of[edge] >= 0
    edge, at = edge[shared], np.flatnonzero(shared)
    values = np.zeros(int(starts[-1]))
    values[at] = messages[folded[of[edge]] + at - starts[edge]] / times[of[edge]]
    return values
