"""Time of collectives on a network of tiers: links inside a node, between nodes, and so on outwards.

A group has n devices, of which link i joins n_i (or n_i of their nodes), innermost first, n = prod n_i. The outermost
link with n_i > 1 is the top: k = n_top, g = n / k. Each device holds B bytes before. w is the time of the bytes:

    ring          rate = min over i with n_i > 1 of bandwidth_i * prod_{j<i} n_j: a ring enters a node by every NIC
    all_gather    w = (n - 1) B / rate
    reduce_scatter w = B (n - 1) / n / rate
    all_reduce    w = 2 B (n - 1) / n / rate; within one tier divided by its switch's factor, if that reduces; between
                  two nodes (k = 2) at most the larger of all_reduce inside and B / (g bandwidth), as trees halve it
    all_to_all    w = max over i of B (prod_{j<=i} n_j - prod_{j<i} n_j) / n / bandwidth_i: the peers reached over i
    exchange      w = bytes that the busiest device receives or sends / bandwidth of the slowest link

    seconds = latency + steps + 2 sqrt(fill w) + w

The latency is that of the top link. 2 sqrt(fill w) + w is a pipeline of chunks of the best size, each of which costs a
fill (Hockney, "The communication challenge for MPP", 1994, with the number of chunks optimized); in trees the fill
counts log2 k times. Without this term, latency + bytes / bandwidth misses the published nccl-tests rows by 16-35 % near
the knee. The steps are those of NCCL:

    all_gather, reduce_scatter      sum step_i (n_i - 1) prod_{j>i} n_j: a ring through all n devices, with k - 1 steps
                                    between k nodes and n - k inside them
    all_reduce                      twice that, or, if less, twice the way from the leaves to the root: a chain of
                                    n_i - 1 steps inside a node, a tree of log2 n_i levels where a link has levels
    all_to_all, any other exchange  sum of step_i over the messages that a device sends over link i

"NVIDIA/nccl" 2.30.7, src/graph/tuning.cc, has for rings (nsteps - nInterSteps) intraLat + nInterSteps interLat, with
nsteps = 2 (n - 1) or n - 1, and for trees 2 ((n / k - 1) intraLat + log2i(k) interLat). It does not price an
all_to_all, which consists of grouped sends and receives, one to each peer. `benchmarks/collective_costs.py` measures
the errors of these formulas.
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
    """Reduction in the switch: an all_reduce of at least `devices` devices is faster by `factor`, with its own fill."""

    factor: float
    fill_s: float
    devices: int


@dataclass(frozen=True, slots=True)
class Link:
    """Figures of a link; times in seconds.

    latency_s  of any collective
    bandwidth  bus bandwidth in B/s, per device and direction
    step_s     of a step of a ring or chain
    level_s    of a level of a tree; None: the link uses chains
    fill_s     of filling a pipeline
    """

    latency_s: float
    bandwidth: float
    step_s: float = 0.0
    level_s: float | None = None
    fill_s: float = 0.0
    switch: InSwitchReduction | None = None

    @property
    def peak_bandwidth(self) -> float:
        """Bandwidth in B/s that no collective exceeds."""
        return self.bandwidth * (self.switch.factor if self.switch else 1.0)

    def seconds(self, wire_s: float, steps_s: float, fill_s: float) -> float:
        """Return the seconds of a collective whose outermost link this is."""
        return self.latency_s + steps_s + 2 * math.sqrt(fill_s * wire_s) + wire_s


class TierSpan(NamedTuple):
    """A link, and the number of devices or nodes of a group that it joins."""

    link: Link
    fanout: int


def collective_s(kind: Kind, group: Sequence[TierSpan], local: float) -> float:
    """Return the seconds of a collective in one group, given innermost link first; `local` are bytes per device."""
    crossed = [each for each in group if each.fanout > 1]
    if not crossed:
        return 0.0
    return COLLECTIVE_TIMES[kind].seconds(crossed, local)


def exchange_s(link: Link, messages: float, size: float) -> float:
    """Return the seconds of an exchange on its slowest link, by messages and bytes (`size`) of the busiest device."""
    return link.seconds(size / link.bandwidth, messages * link.step_s, link.fill_s)


def _all_gather_s(crossed: Sequence[TierSpan], local: float) -> float:
    return _one_ring_s(crossed, (_group_size(crossed) - 1) * local)


def _reduce_scatter_s(crossed: Sequence[TierSpan], local: float) -> float:
    n = _group_size(crossed)
    return _one_ring_s(crossed, local * (n - 1) / n)


def _one_ring_s(crossed: Sequence[TierSpan], received: float) -> float:
    """Return the seconds of one pass of a ring, by the bytes that each device receives."""
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
    """Return the time of the bytes of an all_reduce inside a node."""
    n, link = _group_size(inner), inner[-1].link
    factor = link.switch.factor if len(inner) == 1 and link.switch and n >= link.switch.devices else 1.0
    return 2 * local * (n - 1) / n / (_ring_rate(inner) * factor)


def _steps_s(crossed: Sequence[TierSpan]) -> float:
    """Return the time of one step to each other device, by the link that reaches it."""
    seconds, held = 0.0, 1
    for link, count in crossed:
        seconds, held = seconds + link.step_s * (count - 1) * held, held * count
    return seconds


def _ring_s(crossed: Sequence[TierSpan]) -> float:
    """Return the time of the steps of a ring through a group; inner links count in each node that outer links join."""
    return _steps_s(crossed[::-1])


def _tree_s(link: Link, count: int) -> float:
    """Return the time from the leaves to the root of the devices that a link joins."""
    return link.step_s * (count - 1) if link.level_s is None else link.level_s * math.log2(count)


def _ring_rate(crossed: Sequence[TierSpan]) -> float:
    rate, below = math.inf, 1
    for link, count in crossed:
        rate, below = min(rate, link.bandwidth * below), below * count
    return rate


def _peers_s(crossed: Sequence[TierSpan], local: float) -> float:
    """Return the time of the bytes of an all_to_all on the busiest link."""
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
"""Collectives that send data. An exchange is timed by its traffic (`exchange_s`), a local copy by memory bandwidth."""
