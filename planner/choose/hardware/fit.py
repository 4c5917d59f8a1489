"""Fit the figures of a network to measured collectives: minimize the mean relative error.

This is a pattern search over logarithms (Hooke, Jeeves, "Direct search solution of numerical and statistical problems",
1961): each figure in turn is tried e^s times larger and smaller, where s starts at 1/2 and is halved for a figure when
neither is better. Figures on which no measurement depends keep their values. The time grows with rounds * figures *
measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from planner.choose.hardware import Hardware
from planner.choose.hardware.network import COLLECTIVE_TIMES, Link, TierSpan, collective_s
from planner.errors import InvalidHardware
from planner.ir.collectives import COLLECTIVES, Kind

FIT_ROUNDS = 30
MIN_TIMINGS = 8
"""Least number of measurements of a link, and of small messages to fit its latencies; it has up to seven figures."""
SMALL_MESSAGE_BYTES = 1 << 20
"""Messages below this size measure latencies rather than bandwidth."""
RATES = ("bandwidth", "factor")
FIGURES = ("bandwidth", "latency_s", "fill_s", "step_s", "level_s", "factor", "switch_fill_s")


@dataclass(frozen=True, slots=True)
class Timing:
    """A measured collective.

    counts       devices or nodes of the group that each link joins, innermost first
    local_bytes  bytes that each device holds before
    """

    kind: Kind
    counts: tuple[int, ...]
    local_bytes: float
    seconds: float

    @property
    def whole_bytes(self) -> float:
        """Bytes of the whole tensor: what a device gathers, or starts from."""
        return self.local_bytes * (math.prod(self.counts) if COLLECTIVES[self.kind].gathers else 1)

    def predicted_s(self, links: Sequence[Link]) -> float:
        group = [TierSpan(*each) for each in zip(links, self.counts, strict=True)]
        return collective_s(self.kind, group, self.local_bytes)

    def error(self, links: Sequence[Link]) -> float:
        """Return the relative error of the prediction, as a positive number."""
        return abs(self.predicted_s(links) / self.seconds - 1)


def fit_links(
    links: Sequence[Link], timings: Sequence[Timing], rounds: int = FIT_ROUNDS, *, held: int = 0
) -> tuple[Link, ...]:
    """Return the links, innermost first, with the figures that fit the timings best, starting from the given ones.

    The first `held` links keep their figures, as do latencies that the timings do not determine.
    """
    now, figures = list(links), _identifiable_figures(timings)
    strides = dict.fromkeys(((at, figure) for at in range(held, len(now)) for figure in figures), 0.5)
    error = _mean_error(now, timings)
    for _ in range(rounds):
        for (at, figure), stride in strides.items():
            tried = [(_mean_error(trial, timings), trial) for trial in _trial_links(now, at, figure, stride=stride)]
            best, trial = min(tried, key=lambda each: each[0], default=(error, now))
            if best < error:
                error, now = best, trial
            else:
                strides[at, figure] = stride / 2
    return tuple(now)


@dataclass(frozen=True, slots=True)
class Refit:
    """A refitted link: the number of measurements, and their median relative error before and after."""

    name: str
    link: Link
    timings: int
    before: float
    after: float


def refit_hardware(hardware: Hardware, timings: Sequence[Timing], far: str | None = None) -> list[Refit]:
    """Refit the links of a profile: the innermost one to timings on one host, then the one between hosts to the rest.

    `far` names the link between hosts (None: that of the second tier); the counts of the timings are those of these
    two links. Raises InvalidHardware where there is no such link, or too few measurements of one.
    """
    near, inside = next(iter(hardware.links)), [each for each in timings if each.counts[1] == 1]
    between = [each for each in timings if each.counts[1] > 1]
    refits = [_refit(hardware, (near, near), inside, held=0)] if inside else []
    if between:
        base = replace(hardware, links={**hardware.links, **{each.name: each.link for each in refits}})
        refits.append(_refit(base, (near, far or _inter_node_link(hardware)), between, held=1))
    return refits


def _inter_node_link(hardware: Hardware) -> str:
    if len(hardware.tiers) < 2:
        where = f"hardware {hardware.name!r}: tiers"
        raise InvalidHardware("no link between hosts", where=where, got=hardware.tiers[0].link, wanted="a second tier")
    return hardware.tiers[1].link


def _refit(hardware: Hardware, ends: tuple[str, str], timings: Sequence[Timing], *, held: int) -> Refit:
    name = ends[held]
    if name not in hardware.links:
        known = ", ".join(hardware.links)
        raise InvalidHardware("unknown link", where=f"hardware {hardware.name!r}", got=name, wanted=f"one of {known}")
    if len(timings) < MIN_TIMINGS:
        wanted = f"{MIN_TIMINGS} or more"
        raise InvalidHardware("too few measurements", where=f"link {name!r}", got=len(timings), wanted=wanted)
    links = tuple(hardware.links[each] for each in ends)
    best = fit_links(links, timings, held=held)
    before, after = (median(each.error(listed) for each in timings) for listed in (links, best))
    return Refit(name, best[held], len(timings), before, after)


def _identifiable_figures(timings: Sequence[Timing]) -> tuple[str, ...]:
    """Return the figures that the timings determine.

    Latencies need enough small messages. The steps of rings need a collective without trees, as an all_reduce may take
    the tree instead, and the levels of trees need an all_reduce.
    """
    small = [each.kind for each in timings if each.whole_bytes < SMALL_MESSAGE_BYTES]
    if len(small) < MIN_TIMINGS:
        return RATES
    trees = [COLLECTIVE_TIMES[kind].uses_trees for kind in small]
    undetermined = {"level_s"} if not any(trees) else {"step_s"} if all(trees) else set()
    return tuple(figure for figure in FIGURES if figure not in undetermined)


def _trial_links(links: list[Link], at: int, figure: str, *, stride: float) -> Iterator[list[Link]]:
    for factor in (math.exp(stride), math.exp(-stride)):
        changed = _scale_figure(links[at], figure, factor)
        if changed is not None and changed != links[at]:
            yield [*links[:at], changed, *links[at + 1 :]]


def _scale_figure(link: Link, figure: str, factor: float) -> Link | None:
    """Return the link with one figure scaled, or None where it lacks the figure."""
    if figure in ("factor", "switch_fill_s"):
        if link.switch is None:
            return None
        if figure == "factor":
            return replace(link, switch=replace(link.switch, factor=max(1.0, link.switch.factor * factor)))
        return replace(link, switch=replace(link.switch, fill_s=link.switch.fill_s * factor))
    value = getattr(link, figure)
    return None if not value else replace(link, **{figure: value * factor})


def _mean_error(links: Sequence[Link], timings: Sequence[Timing]) -> float:
    return sum(each.error(links) for each in timings) / max(1, len(timings))
