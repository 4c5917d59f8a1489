"""A network's figures from measured collectives: those with the least mean relative error.

A pattern search over logarithms (Hooke, Jeeves, "Direct search solution of numerical and statistical problems", 1961):
every figure in turn is tried e^s times larger and smaller; s starts at 1/2 and is halved for a figure that neither
improves. Figures that no measurement depends on stay as they were. Time grows with rounds * figures * measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.choose.hardware.network import Crossing, Link, collective_s
from planner.model.collectives import Kind

ROUNDS = 30
FIGURES = ("bandwidth", "latency_s", "fill_s", "step_s", "level_s", "factor", "switch_fill_s")


@dataclass(frozen=True, slots=True)
class Timing:
    """A measured collective: how many of its group each link joins, innermost first; bytes a device before; seconds."""

    kind: Kind
    counts: tuple[int, ...]
    local_bytes: float
    seconds: float

    def predicted_s(self, links: Sequence[Link]) -> float:
        group = [Crossing(*each) for each in zip(links, self.counts, strict=True)]
        return collective_s(self.kind, group, self.local_bytes)

    def error(self, links: Sequence[Link]) -> float:
        """Relative, above 0."""
        return abs(self.predicted_s(links) / self.seconds - 1)


def fitted(links: Sequence[Link], timings: Sequence[Timing], rounds: int = ROUNDS, held: int = 0) -> tuple[Link, ...]:
    """The links, innermost first, with the figures that fit best, from those given as the start; the first `held`
    of them as given."""
    now = list(links)
    strides = dict.fromkeys(((at, figure) for at in range(held, len(now)) for figure in FIGURES), 0.5)
    error = _error(now, timings)
    for _ in range(rounds):
        for (at, figure), stride in strides.items():
            tried = [(_error(trial, timings), trial) for trial in _trials(now, at, figure, stride)]
            best, trial = min(tried, key=lambda each: each[0], default=(error, now))
            if best < error:
                error, now = best, trial
            else:
                strides[at, figure] = stride / 2
    return tuple(now)


def _trials(links: list[Link], at: int, figure: str, stride: float) -> Iterator[list[Link]]:
    for factor in (math.exp(stride), math.exp(-stride)):
        changed = _scaled(links[at], figure, factor)
        if changed is not None and changed != links[at]:
            yield [*links[:at], changed, *links[at + 1 :]]


def _scaled(link: Link, figure: str, factor: float) -> Link | None:
    """A link with one figure scaled, if it has it."""
    if figure in ("factor", "switch_fill_s"):
        if link.switch is None:
            return None
        if figure == "factor":
            return replace(link, switch=replace(link.switch, factor=max(1.0, link.switch.factor * factor)))
        return replace(link, switch=replace(link.switch, fill_s=link.switch.fill_s * factor))
    value = getattr(link, figure)
    return None if not value else replace(link, **{figure: value * factor})


def _error(links: Sequence[Link], timings: Sequence[Timing]) -> float:
    return sum(each.error(links) for each in timings) / max(1, len(timings))
