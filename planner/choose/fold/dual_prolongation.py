"""Turn the messages of a folded problem into messages of the unfolded one.

An edge of the folded problem stands for several equal edges, each of which gets an equal share of its messages. An edge
within a class has become part of a node, and gets none. Any messages are valid for the bound (solvers/trws.py). Where
layers are alike, up to their ends, and use equal memory at the time steps with multipliers, these messages give each
node of a class an equal share of the folded node's reparametrized cost, so that the bound starts near that of the
folded problem.
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
    """Return messages of the whole problem: for each strategy at the source of each edge, then at the targets.

    `messages` are those of the folded problem, in the same order; member[v] is the folded node of node v.
    """
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
    """Return the messages at one end of every edge.

    The values of edge e start at starts[e]. It is one of times[of[e]] edges that the folded edge of[e] stands for,
    whose values start at folded[of[e]]; of[e] is -1 for an edge within a class.
    """
    edge = np.repeat(np.arange(of.size), np.diff(starts))
    shared = of[edge] >= 0
    # `at - starts[edge]` is the position of a value within its edge, which is the same in the folded edge.
    edge, at = edge[shared], np.flatnonzero(shared)
    values = np.zeros(int(starts[-1]))
    values[at] = messages[folded[of[edge]] + at - starts[edge]] / times[of[edge]]
    return values
