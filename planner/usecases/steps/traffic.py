"""Seconds of the collectives and sends of a training step, by the network of the profile.

Devices are numbered with tensor parallelism innermost, then experts, context, data and stages, as Megatron does.
"""

from __future__ import annotations

from functools import lru_cache

from planner.choose.hardware import Hardware
from planner.choose.hardware.network import TierSpan, collective_s, exchange_s
from planner.ir.collectives import COLLECTIVES, Kind
from planner.ir.mesh import Mesh


def group_s(hardware: Hardware, kind: Kind, count: int, *, stride: int, size: float) -> float:
    """Return the seconds of a collective over `count` devices, `stride` apart; `size` are the bytes of the whole."""
    if count == 1 or size <= 0:
        return 0.0
    return collective_s(kind, _spans(hardware, count, stride), size / count if COLLECTIVES[kind].gathers else size)


def pair_s(hardware: Hardware, count: int, *, stride: int, size: float) -> float:
    """Return the seconds of an all_gather and a reduce_scatter of `size` bytes."""
    return sum(
        group_s(hardware, kind, count, stride=stride, size=size) for kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
    )


def send_s(hardware: Hardware, stages: int, *, stride: int, size: float) -> float:
    """Return the seconds to send `size` bytes to the next stage, over the slowest link between stages."""
    if stages == 1:
        return 0.0
    link = next(link for link, count in reversed(_spans(hardware, stages, stride)) if count > 1)
    return exchange_s(link, 1, size)


@lru_cache(maxsize=4096)
def _spans(hardware: Hardware, count: int, stride: int) -> tuple[TierSpan, ...]:
    return hardware.tier_spans(Mesh.parse(f"group={count},inner={stride}"))[0]
