"""Choices of the unfolded problem that are one up to some layer and another from there on.

Planned alike, layers either all fit the limit or all break it. The cheapest way to just fit it is often that some are
planned one way and the others another, and the cheapest place for the change is between two layers, once. So a choice
that fits and one that is cheaper and does not are spliced: the former in the first layers, or in the last, as few as
make it fit. That number is found by bisection, as if more of them always used less (else it is not the fewest, but fits
all the same). Which of the two the nodes outside all layers follow is tried both ways.

What the change costs is seen only by evaluating it (where mesh axes are equal, a plan may be there with its axes
exchanged, and only one goes with the other), so several of each are tried: time grows with their pairs, the logarithm
of the layers, and one evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from solvers import Problem, evaluate

Integers = NDArray[np.int64]
Choice = tuple[int, ...]

# So many of the choices that fit, and of those that do not.
MAX_CROSSOVERS = 4


def crossover(problem: Problem, orbits: Sequence[Sequence[int]], choices: Sequence[Sequence[int]]) -> Choice | None:
    """The cheapest that fits; None where none of the choices does, or all do. orbits: like nodes of consecutive layers;
    choices: the best first."""
    different = [np.array(choice, np.int64) for choice in dict.fromkeys(map(tuple, choices))]
    fits = [evaluate(problem, choice).feasible for choice in different]
    lean = [choice for choice, fit in zip(different, fits, strict=True) if fit][:MAX_CROSSOVERS]
    rich = [choice for choice, fit in zip(different, fits, strict=True) if not fit][:MAX_CROSSOVERS]
    found = [
        each
        for some, others, order in product(lean, rich, tuple(_layer_orders(len(problem.nodes), orbits)))
        for each in _search_crossover(problem, some, others, order=order)
    ]
    return min(found)[1] if found else None


def _layer_orders(nodes: int, orbits: Sequence[Sequence[int]]) -> Iterator[Integers]:
    """The layer of every node, counted from the first or from the last; of those in none, before or behind all."""
    layers = max(map(len, orbits), default=0)
    place = np.full(nodes, -1)
    for orbit in orbits:
        place[list(orbit)] = np.arange(len(orbit)) * layers // len(orbit)
    for order in (place, layers - 1 - place):
        for outside in (-1, layers):
            yield np.where(place < 0, outside, order)


def _search_crossover(
    problem: Problem, some: Integers, others: Integers, *, order: Integers
) -> Iterator[tuple[int, Choice]]:
    """Costs and choices that fit, on the way to the fewest layers that must be as in `some`."""
    few, many = 0, int(order.max(initial=0)) + 2
    while few < many:
        middle = (few + many) // 2
        choice = np.where(order < middle, some, others)
        judged = evaluate(problem, choice)
        if judged.feasible:
            many = middle
            yield judged.cost, tuple(choice.tolist())
        else:
            few = middle + 1
