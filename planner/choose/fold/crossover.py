"""Combine two assignments of the unfolded problem: one up to some layer, the other from there on.

If all layers are sharded alike, either all of them fit the memory limit together or none do. The cheapest assignment
that just fits often shards some layers one way and the others another, with one change between two layers. So a
feasible assignment is combined with a cheaper infeasible one: it is used in the first layers, or in the last, as few as
make the result feasible. Their number is found by bisection, as if more of them always used less memory; where this is
wrong the number is not minimal, but the result is feasible all the same. Nodes outside all layers follow either.

The cost of the change is known only after an evaluation (where mesh axes are equal, an assignment may have its axes
exchanged and not fit the other one), so several assignments of each kind are tried. The time grows with the number of
pairs, the logarithm of the number of layers, and the time of an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from solvers import Problem, evaluate

Integers = NDArray[np.int64]
Choice = tuple[int, ...]

# Numbers of feasible and of infeasible assignments to try.
MAX_CROSSOVERS = 4


def crossover(problem: Problem, orbits: Sequence[Sequence[int]], choices: Sequence[Sequence[int]]) -> Choice | None:
    """Return the cheapest feasible combination, or None where all or none of the assignments are feasible.

    orbits   corresponding nodes of consecutive layers
    choices  assignments, the best first
    """
    different = [np.array(choice, np.int64) for choice in dict.fromkeys(map(tuple, choices))]
    fits = [evaluate(problem, choice).feasible for choice in different]
    lean = [choice for choice, fit in zip(different, fits, strict=True) if fit][:MAX_CROSSOVERS]
    rich = [choice for choice, fit in zip(different, fits, strict=True) if not fit][:MAX_CROSSOVERS]
    combined = [
        each
        for some, others, order in product(lean, rich, tuple(_layer_orders(len(problem.nodes), orbits)))
        for each in _search_crossover(problem, some, others, order=order)
    ]
    return min(combined)[1] if combined else None


def _layer_orders(nodes: int, orbits: Sequence[Sequence[int]]) -> Iterator[Integers]:
    """Yield the layer of each node, from the first or the last layer; nodes outside are before or after all layers."""
    layers = max(map(len, orbits), default=0)
    place = np.full(nodes, -1)
    for orbit in orbits:
        # Positions in orbits that are shorter than the stack are scaled to its length.
        place[list(orbit)] = np.arange(len(orbit)) * layers // len(orbit)
    for order in (place, layers - 1 - place):
        for outside in (-1, layers):
            yield np.where(place < 0, outside, order)


def _search_crossover(
    problem: Problem, some: Integers, others: Integers, *, order: Integers
) -> Iterator[tuple[int, Choice]]:
    """Yield the feasible assignments met while bisecting the number of layers that follow `some`, with their costs."""
    few, many = 0, int(order.max(initial=0)) + 2
    while few < many:
        middle = (few + many) // 2
        choice = np.where(order < middle, some, others)
        evaluation = evaluate(problem, choice)
        if evaluation.feasible:
            many = middle
            yield evaluation.cost, tuple(choice.tolist())
        else:
            few = middle + 1
