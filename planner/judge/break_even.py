"""Find the bandwidth of a link at which another known layout would be faster than the plan.

Both programs stay as they are and are priced with the link's bandwidth times a factor. The difference of their times is
a continuous function of the factor. It is evaluated at powers of two, up to MAX_FACTOR doublings or halvings, until it
changes sign, and the break-even is found by bisection. Times are whole picoseconds, so the factor is determined to a
ratio of FACTOR_STEP and no better.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from planner.choose.cost import CostModel
from planner.ir.collectives import Collective
from planner.ir.graph import TensorType
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis

MAX_FACTOR, FACTOR_STEP = 10, 1.01


class CountedMove(NamedTuple):
    """A reshard, as a key to count equal ones."""

    collective: Collective
    source: Sharding
    type: TensorType


@dataclass(frozen=True)
class RepricedProgram:
    """A program whose reshards are priced repeatedly; `compute_ps` is the time of its ops."""

    name: str
    program: Program
    compute_ps: int

    @cached_property
    def moves(self) -> Counter[CountedMove]:
        values = self.program.values
        counts: Counter[CountedMove] = Counter()
        for done, trips in zip(self.program.instructions, self.program.trips, strict=True):
            if isinstance(done, Reshard):
                held = values[done.operand]
                counts[CountedMove(done.collective, held.sharding, held.type)] += trips
        return counts

    @classmethod
    def of(cls, name: str, analysis: Analysis) -> RepricedProgram:
        return cls(name, analysis.program, analysis.compute_ps)

    def step_ps(self, model: CostModel) -> int:
        return self.compute_ps + sum(count * model.move_ps(*move) for move, count in self.moves.items())


@dataclass(frozen=True, slots=True)
class BreakEven:
    """With the bandwidth of the link times `factor` (below 1: slower), the layout is faster than the plan."""

    link: str
    layout: str
    factor: float


def find_break_evens(plan: RepricedProgram, layouts: Iterable[RepricedProgram], model: CostModel) -> list[BreakEven]:
    """Return for each link, slower and faster, the first layout to overtake the plan; of ties the earlier."""
    break_evens = []
    listed = list(layouts)
    for link in _crossed_links(model):
        for up in (False, True):
            factors = [
                (factor, each.name) for each in listed if (factor := _find_factor(plan, each, model, link=link, up=up))
            ]
            if factors:
                factor, name = min(factors, key=lambda each: abs(math.log(each[0])))
                break_evens.append(BreakEven(link, name, factor))
    return break_evens


def _crossed_links(model: CostModel) -> list[str]:
    used = {link.link for axis in model.tier_spans for link in axis if link.fanout > 1}
    return [name for name, link in model.hardware.links.items() if link in used]


def _find_factor(
    plan: RepricedProgram, layout: RepricedProgram, model: CostModel, *, link: str, up: bool
) -> float | None:
    """Return the factor nearest to 1 at which the layout is faster, or None where there is none in the range."""

    def is_faster(factor: float) -> bool:
        changed = _scale_link(model, link, factor)
        return layout.step_ps(changed) < plan.step_ps(changed)

    if is_faster(1.0):
        return 1.0
    factors = (2.0 ** (power if up else -power) for power in range(1, MAX_FACTOR + 1))
    far = next((factor for factor in factors if is_faster(factor)), None)
    return None if far is None else _bisect_factor(is_faster, far / 2 if up else far * 2, far)


def _bisect_factor(is_faster: Callable[[float], bool], near: float, far: float) -> float:
    while max(near / far, far / near) > FACTOR_STEP:
        middle = math.sqrt(near * far)
        near, far = (near, middle) if is_faster(middle) else (middle, far)
    return far


def _scale_link(model: CostModel, link: str, factor: float) -> CostModel:
    known = model.hardware.links[link]
    links = {**model.hardware.links, link: replace(known, bandwidth=known.bandwidth * factor)}
    return CostModel(model.mesh, replace(model.hardware, links=links))
