"""A network's figures from measured collectives: those with the least mean relative error.

A pattern search over logarithms (Hooke, Jeeves, "Direct search solution of numerical and statistical problems", 1961):
every figure in turn is tried e^s times larger and smaller; s starts at 1/2 and is halved for a figure that neither
improves. Figures that no measurement depends on stay as they were. Time grows with rounds * figures * measurements.
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
"""Of a link that is fitted, and of small messages where its waits are: it has up to seven figures."""
SMALL_MESSAGE_BYTES = 1 << 20
"""Bytes below which waits are what is measured."""
RATES = ("bandwidth", "factor")
FIGURES = ("bandwidth", "latency_s", "fill_s", "step_s", "level_s", "factor", "switch_fill_s")


@dataclass(frozen=True, slots=True)
class Timing:
    """A measured collective: how many of its group each link joins, innermost first; bytes a device before; seconds."""

    kind: Kind
    counts: tuple[int, ...]
    local_bytes: float
    seconds: float

    @property
    def whole_bytes(self) -> float:
        """Of what a device gathers, or starts from."""
        return self.local_bytes * (math.prod(self.counts) if COLLECTIVES[self.kind].gathers else 1)

    def predicted_s(self, links: Sequence[Link]) -> float:
        group = [TierSpan(*each) for each in zip(links, self.counts, strict=True)]
        return collective_s(self.kind, group, self.local_bytes)

    def error(self, links: Sequence[Link]) -> float:
        """Relative, above 0."""
        return abs(self.predicted_s(links) / self.seconds - 1)


def fit_links(
    links: Sequence[Link], timings: Sequence[Timing], rounds: int = FIT_ROUNDS, *, held: int = 0
) -> tuple[Link, ...]:
    """The links, innermost first, with the figures that fit best, from those given as the start; the first `held`
    of them as given, and waits that `timings` say nothing of."""
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
    """A link anew: from how many measurements, and their median relative error before and after."""

    name: str
    link: Link
    timings: int
    before: float
    after: float


def refit_hardware(hardware: Hardware, timings: Sequence[Timing], far: str | None = None) -> list[Refit]:
    """The links of a profile anew: the innermost one fitted to what ran on one host, then `far`, the one between hosts
    (None: that of the second tier), to the rest; counts are those of the two links.

    Raises InvalidHardware where there is no such link, or too few measurements of one.
    """
    near, inside = next(iter(hardware.links)), [each for each in timings if each.counts[1] == 1]
    between = [each for each in timings if each.counts[1] > 1]
    found = [_refit(hardware, (near, near), inside, held=0)] if inside else []
    if between:
        base = replace(hardware, links={**hardware.links, **{each.name: each.link for each in found}})
        found.append(_refit(base, (near, far or _inter_node_link(hardware)), between, held=1))
    return found


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
    """Figures that measurements say something of: waits, if enough of them are of small messages; steps of rings only
    beside an all_reduce's own, which trees take as long for, and levels of trees only by an all_reduce."""
    small = [each.kind for each in timings if each.whole_bytes < SMALL_MESSAGE_BYTES]
    if len(small) < MIN_TIMINGS:
        return RATES
    trees = [COLLECTIVE_TIMES[kind].uses_trees for kind in small]
    untold = {"level_s"} if not any(trees) else {"step_s"} if all(trees) else set()
    return tuple(figure for figure in FIGURES if figure not in untold)


def _trial_links(links: list[Link], at: int, figure: str, *, stride: float) -> Iterator[list[Link]]:
    for factor in (math.exp(stride), math.exp(-stride)):
        changed = _scale_figure(links[at], figure, factor)
        if changed is not None and changed != links[at]:
            yield [*links[:at], changed, *links[at + 1 :]]


def _scale_figure(link: Link, figure: str, factor: float) -> Link | None:
    """A link with one figure scaled, if it has it."""
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
