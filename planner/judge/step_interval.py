"""How sure a predicted step is: an interval from the errors of what prices its instructions.

Each instruction belongs to a class: a fitted class of kernels, with the 5th and 95th percentile of measured over
predicted time on shapes kept out of its fit, wider where other devices were measured; ops that no measurement prices;
copies; collectives. With t the time of a
class and h the upper factor of its instructions (1 - l for the lower end, alike),

    high = step + sqrt(sum over classes of (sum over instructions of t (h - 1)) ** 2)

Errors within a class come from one fit and are taken to go together, those of different classes to be independent of
each other (propagation of uncertainty; JCGM 100:2008, 5.1 and 5.2). What overlap hides is hidden of both ends alike.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from planner.choose.cost import PICO, price_key
from planner.choose.hardware.intervals import NETWORK_INTERVAL, OUT_OF_RANGE, UNMEASURED_OP
from planner.choose.op_prices import OpPricing
from planner.ir.program import Reshard
from planner.judge.analysis import Analysis
from planner.judge.overlap import is_communication

COLLECTIVES, COPIES, UNMEASURED = "collectives", "copies", "unmeasured ops"


class Factors(NamedTuple):
    """The class of an instruction, and the interval of measured over predicted time."""

    name: str
    low: float
    high: float
    is_covered: bool = True


@dataclass(frozen=True)
class ClassInterval:
    """Seconds of the instructions of a class, and the ends of their interval."""

    name: str
    time_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True)
class StepInterval:
    """The interval of a step in seconds.

    out_of_range_s  time of ops whose shape is outside the measured ones
    unmeasured_s    time of ops that no measurement prices
    """

    low_s: float
    high_s: float
    out_of_range_s: float
    unmeasured_s: float
    by_class: tuple[ClassInterval, ...]


def find_interval(analysis: Analysis, step_s: float) -> StepInterval:
    """Return the interval of a predicted step, `step_s` with what overlap hides."""
    times: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    out_of_range_s = 0.0
    for time_ps, factors in zip(analysis.times_ps, list_factors(analysis), strict=True):
        seconds, own = time_ps * PICO, times[factors.name]
        for place, factor in enumerate((1.0, factors.low, factors.high)):
            own[place] += seconds * factor
        out_of_range_s += 0.0 if factors.is_covered else seconds
    by_class = tuple(ClassInterval(name, *own) for name, own in sorted(times.items()) if own[0])
    serial_s = analysis.step_ps * PICO
    below = math.hypot(*(each.time_s - each.low_s for each in by_class))
    above = math.hypot(*(each.high_s - each.time_s for each in by_class))
    shown = step_s / serial_s if serial_s else 1.0
    unmeasured_s = times[UNMEASURED][0]
    return StepInterval((serial_s - below) * shown, (serial_s + above) * shown, out_of_range_s, unmeasured_s, by_class)


def list_factors(analysis: Analysis) -> Iterator[Factors]:
    """Yield the class and interval of each instruction. Equal ops of repeated layers are looked up once."""
    known: dict[object, Factors] = {}
    values = analysis.program.values
    for done in analysis.program.instructions:
        if isinstance(done, Reshard):
            sends = is_communication(done)
            yield Factors(COLLECTIVES, *NETWORK_INTERVAL) if sends else Factors(COPIES, *UNMEASURED_OP)
            continue
        key = price_key(done.op), done.op.rule.pattern, done.op.rule.shapes, done.op.results, done.option
        if key not in known:
            sizes = analysis.model.op_work(done.op, tuple(values[v].type for v in done.operands), done.option).sizes
            known[key] = _op_factors(OpPricing.of(done.op, analysis.model.hardware), sizes)
        yield known[key]


def _op_factors(pricing: OpPricing, sizes: tuple[int, ...]) -> Factors:
    name = UNMEASURED if pricing.correction.is_identity else pricing.source
    low, high = pricing.interval
    is_covered = pricing.is_covered(sizes)
    spread = 1.0 if is_covered else OUT_OF_RANGE
    return Factors(
        name if pricing.times is None else pricing.times.name,
        min(1.0, low / spread),
        max(1.0, high * spread),
        is_covered,
    )
