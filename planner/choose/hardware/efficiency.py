"""Share of a device's peak rate that a class of ops reaches, as a function of its work.

The classes are `product` (operands contracted over common loops), `attention` (a contraction over a loop that a softmax
blocks) and `attention_backward` (the same with a gradient for each operand). Between measured points the share is a
power of the work, and beyond them it is constant. The points must be such that more work never takes less time, which
then holds between them too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidHardware
from planner.ir.graph import Op

PRODUCT, ATTENTION, ATTENTION_BACKWARD = "product", "attention", "attention_backward"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Points (flops, share of the peak rate), flops ascending."""

    flops: tuple[float, ...]
    share: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.flops or len(self.flops) != len(self.share):
            wanted = "as many, one or more"
            raise InvalidHardware("points", got=f"{len(self.flops)}, {len(self.share)}", wanted=wanted)
        if not all(flops > 0 and 0 < share <= 1 for flops, share in zip(self.flops, self.share, strict=True)):
            raise InvalidHardware("points", wanted="flops above 0, shares above 0 and at most 1")
        seconds = [flops / share for flops, share in zip(self.flops, self.share, strict=True)]
        if any(one >= other for one, other in (*pairwise(self.flops), *pairwise(seconds))):
            raise InvalidHardware("points", wanted="flops ascending, and more time for more of them")

    @classmethod
    def of(cls, points: Sequence[Sequence[float]]) -> Efficiency:
        """Build from pairs [flops, share]."""
        return cls(*(tuple(map(float, column)) for column in zip(*points, strict=True)))

    def at(self, flops: float) -> float:
        if flops <= self.flops[0]:
            return self.share[0]
        return math.exp(np.interp(math.log(flops), _log_points(self.flops), _log_points(self.share)))


@lru_cache
def _log_points(points: tuple[float, ...]) -> NDArray[np.float64]:
    return np.log(points)


def work_class(op: Op) -> str | None:
    """Return the class of an op by its rule, or None.

    An op of a class has two operands with loops of their own each; the loops that they share are contracted, or, in
    attention, blocked by the softmax between two contractions. A loop of size 1 counts as any other.
    """
    terms = [{loop for dim in term for loop in dim.loops} for term in op.rule.operands]
    common = {loop for one, other in combinations(terms, 2) if one - other and other - one for loop in one & other}
    made = {loop for term in op.rule.results for dim in term for loop in dim.loops}
    if common & set(op.rule.pattern.blocked):
        return ATTENTION if len(op.results) == 1 else ATTENTION_BACKWARD
    return PRODUCT if common - made else None
