"""What a collective takes on a network of tiers: links inside a node, between nodes, and so on outwards.

n devices in a group, n_i of them (or of their nodes) joined by link i, innermost first, n = prod n_i; the outermost
with n_i > 1 is the top: k = n_top, g = n / k. B bytes a device before, S the whole tensor. w is the time of the bytes:

    ring          rate = least over i with n_i > 1 of bandwidth_i * prod_{j<i} n_j: a ring enters a node by every NIC
    all_gather    w = (n - 1) B / rate
    reduce_scatter, and whatever else scatters: w = B (n - 1) / n / rate
    all_reduce    w = 2 B (n - 1) / n / rate; inside one tier over its switch's factor, where it reduces in the switch;
                  of two (k = 2) no more than the larger of all_reduce inside and B / (g bandwidth): trees halve it
    all_to_all    w = largest over i of B (prod_{j<=i} n_j - prod_{j<i} n_j) / n / bandwidth_i: peers reached there
    exchange      w = bytes that the busiest device receives or sends / bandwidth of the slowest link

    seconds = latency + steps + 2 sqrt(fill w) + w

latency is the top's. 2 sqrt(fill w) + w is a pipeline of chunks of the best size, each paying a fill (Hockney, "The
communication challenge for MPP", 1994, with the number of chunks chosen); fill counts log2 k times in trees. Plain
latency + bytes / bandwidth misses the published nccl-tests rows by 16-35 % about the knee. The steps are NCCL's:

    all_gather, reduce_scatter      sum step_i (n_i - 1) prod_{j>i} n_j: a ring through all n, by link i inside each of
                                    what it joins; between k nodes k - 1 steps, inside them n - k
    all_reduce                      twice that, or twice from the leaves to the root if less: a chain of n_i - 1 steps
                                    inside a node, a tree of log2 n_i levels where a link has them
    all_to_all, any other exchange  sum of step_i over the messages that a device sends over link i

"NVIDIA/nccl" 2.30.7, src/graph/tuning.cc: of a ring (nsteps - nInterSteps) intraLat + nInterSteps interLat, nsteps =
2 (n - 1) or n - 1, of a tree 2 ((n / k - 1) intraLat + log2i(k) interLat). An all_to_all it does not price: those are
grouped sends and receives, one to each peer. `benchmarks/collective_costs.py` measures all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from planner.ir.collectives import Kind


@dataclass(frozen=True, slots=True)
class InSwitchReduction:
    """Reduction in the switch, for all_reduce among at least so many devices: faster by `factor`, with its own fill."""

    factor: float
    fill_s: float
    devices: int


@dataclass(frozen=True, slots=True)
class Link:
    """Seconds of any collective, of a step of a ring or chain, of a level of a tree (None: chains), of filling a
    pipeline; bus bandwidth in B/s per device and direction."""

    latency_s: float
    bandwidth: float
    step_s: float = 0.0
    level_s: float | None = None
    fill_s: float = 0.0
    switch: InSwitchReduction | None = None

    @property
    def peak_bandwidth(self) -> float:
        """B/s that no collective exceeds."""
        return self.bandwidth * (self.switch.factor if self.switch else 1.0)

    def seconds(self, wire_s: float, steps_s: float, fill_s: float) -> float:
        """Of a collective of which this link is the outermost."""
        return self.latency_s + steps_s + 2 * math.sqrt(fill_s * wire_s) + wire_s


class TierSpan(NamedTuple):
    """A link and how many devices, or nodes, of a group it joins."""

    link: Link
    fanout: int


def collective_s(kind: Kind, group: Sequence[TierSpan], local: float) -> float:
    """Seconds of a collective of `local` bytes a device in one group, innermost link first."""
    crossed = [each for each in group if each.fanout > 1]
    if not crossed:
        return 0.0
    return COLLECTIVE_TIMES[kind].seconds(crossed, local)


def exchange_s(link: Link, messages: float, size: float) -> float:
    """Seconds of an exchange on its slowest link: messages and bytes of the busiest device."""
    return link.seconds(size / link.bandwidth, messages * link.step_s, link.fill_s)


def _all_gather_s(crossed: Sequence[TierSpan], local: float) -> float:
    return _one_ring_s(crossed, (_group_size(crossed) - 1) * local)


def _reduce_scatter_s(crossed: Sequence[TierSpan], local: float) -> float:
    n = _group_size(crossed)
    return _one_ring_s(crossed, local * (n - 1) / n)


def _one_ring_s(crossed: Sequence[TierSpan], received: float) -> float:
    """Seconds of one pass of a ring, of the bytes that each device receives."""
    top = crossed[-1].link
    return top.seconds(received / _ring_rate(crossed), _ring_s(crossed), top.fill_s)


def _all_to_all_s(crossed: Sequence[TierSpan], local: float) -> float:
    top = crossed[-1].link
    return top.seconds(_peers_s(crossed, local), _steps_s(crossed), top.fill_s)


def _group_size(crossed: Sequence[TierSpan]) -> int:
    return math.prod(count for _, count in crossed)


def _all_reduce_s(crossed: Sequence[TierSpan], local: float) -> float:
    (top, k), n = crossed[-1], _group_size(crossed)
    steps = 2 * min(_ring_s(crossed), sum(_tree_s(*each) for each in crossed))
    wire = 2 * local * (n - 1) / n / _ring_rate(crossed)
    if len(crossed) == 1:
        if top.switch and n >= top.switch.devices:
            return min(
                top.seconds(wire, steps, top.fill_s), top.seconds(wire / top.switch.factor, steps, top.switch.fill_s)
            )
        return top.seconds(wire, steps, top.fill_s)
    if k == 2:
        wire = min(wire, max(_intra_node_s(crossed[:-1], local), local * k / n / top.bandwidth))
    return top.seconds(wire, steps, top.fill_s * max(1.0, math.log2(k)))


def _intra_node_s(inner: Sequence[TierSpan], local: float) -> float:
    """Time of the bytes of an all_reduce inside a node."""
    n, link = _group_size(inner), inner[-1].link
    factor = link.switch.factor if len(inner) == 1 and link.switch and n >= link.switch.devices else 1.0
    return 2 * local * (n - 1) / n / (_ring_rate(inner) * factor)


def _steps_s(crossed: Sequence[TierSpan]) -> float:
    """A step to each of the others: on a link as many times as what it joins holds."""
    seconds, held = 0.0, 1
    for link, count in crossed:
        seconds, held = seconds + link.step_s * (count - 1) * held, held * count
    return seconds


def _ring_s(crossed: Sequence[TierSpan]) -> float:
    """Steps through all of a group: inner links are used in every one of what outer ones join."""
    return _steps_s(crossed[::-1])


def _tree_s(link: Link, count: int) -> float:
    """From the leaves to the root of what a link joins."""
    return link.step_s * (count - 1) if link.level_s is None else link.level_s * math.log2(count)


def _ring_rate(crossed: Sequence[TierSpan]) -> float:
    rate, below = math.inf, 1
    for link, count in crossed:
        rate, below = min(rate, link.bandwidth * below), below * count
    return rate


def _peers_s(crossed: Sequence[TierSpan], local: float) -> float:
    """Time of the bytes of an all_to_all on the busiest of the links."""
    slowest, reached, n = 0.0, 1, _group_size(crossed)
    for link, count in crossed:
        slowest = max(slowest, local * reached * (count - 1) / n / link.bandwidth)
        reached *= count
    return slowest


class CollectiveTime(NamedTuple):
    """Seconds of a collective, given the links that its group crosses, innermost first, and the bytes a device holds.

    `uses_trees`: its steps may go through trees, so that measured times say something of a link's `level_s`.
    """

    seconds: Callable[[Sequence[TierSpan], float], float]
    uses_trees: bool = False


COLLECTIVE_TIMES: Mapping[Kind, CollectiveTime] = MappingProxyType(
    {
        Kind.ALL_GATHER: CollectiveTime(_all_gather_s),
        Kind.REDUCE_SCATTER: CollectiveTime(_reduce_scatter_s),
        Kind.ALL_REDUCE: CollectiveTime(_all_reduce_s, uses_trees=True),
        Kind.ALL_TO_ALL: CollectiveTime(_all_to_all_s),
    }
)
"""Every basis move that sends anything. An exchange is timed by its traffic (`exchange_s`), a local copy by memory."""
