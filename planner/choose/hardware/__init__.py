"""Hardware profiles: rates of a device and links between devices, as data with a source for every number.

A profile lists its links, innermost first, and the tiers of its network. Devices d and e communicate over the first
tier with d // devices == e // devices. So a mesh axis of n devices, `stride` apart, runs over a tier as far as this
holds the axis and all later axes, and over the next tiers for the rest, unless the mesh names a link for the axis. If
n does not fill a tier evenly, it uses the most devices there that divide n: jobs use 64 of 72 devices of a domain.

An op takes max(flops / flop rate, bytes / memory rate) + launch (roofline). The flop rate depends on its class and size
where the profile has efficiencies (`planner.choose.hardware.efficiency`). A calibrated profile has curves of measured
times instead, for the ops that were measured (`planner.choose.hardware.curves`). A profile with `op_times` names the
device whose fitted classes of kernels price the ops that belong to one, or says that those of other devices do
(`planner.choose.op_prices`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any, TypeVar

from planner.choose.hardware.corrections import TimeCorrection
from planner.choose.hardware.curves import Curve, Curves
from planner.choose.hardware.efficiency import Efficiency
from planner.choose.hardware.interference import Interference
from planner.choose.hardware.network import InSwitchReduction, Link, TierSpan
from planner.choose.hardware.op_times import list_fitted
from planner.errors import InvalidHardware
from planner.ir.mesh import Mesh

DEFAULT_PROFILE = "h100-sxm"
TRANSFERRED = "transferred"
"""`op_times` of a profile whose device was not measured: the classes of the measured devices, transferred to it."""
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Tier:
    """A level of the network: up to `devices` devices (None: any number) joined by a link."""

    link: str
    devices: int | None


@dataclass(frozen=True)
class Hardware:
    """One profile. Rates are per device, in FLOP/s by dtype and in B/s; times are in seconds, memory in bytes.

    curves        measured times by op name or variant, with or without `.dtype`
    efficiency    share of the peak rate by work class
    op_times      device of the fitted classes of kernels, or TRANSFERRED; None: the roofline prices ops
    op_corrections  by `class.dtype`, what was fitted to times of kernels measured on one's own machine
    step_corrections  the same by software, of training steps; no plan depends on them, and none records them
    overlap       share of the gain of overlapping collectives with ops that counts in a step (`planner.judge.overlap`)
    interference  by link, what ops, its collectives and copies cost each other while they run at the same time
    power_w       rated power of a device in watts; None: not known. No plan depends on it, and none records it
    """

    name: str
    peak_flops: Mapping[str, float]
    compute_efficiency: float
    memory_bandwidth: float
    memory_efficiency: float
    memory_bytes: int
    launch_s: float
    links: Mapping[str, Link]
    tiers: tuple[Tier, ...]
    curves: Mapping[str, Curves] = field(default_factory=lambda: MappingProxyType({}))
    efficiency: Mapping[str, Efficiency] = field(default_factory=lambda: MappingProxyType({}))
    op_times: str | None = None
    op_corrections: Mapping[str, TimeCorrection] = field(default_factory=lambda: MappingProxyType({}))
    overlap: float = 0.0
    interference: Mapping[str, Interference] = field(default_factory=lambda: MappingProxyType({}))
    step_corrections: Mapping[str, TimeCorrection] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    power_w: float | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bandwidth, self.memory_bytes, self.launch_s))

    def __post_init__(self) -> None:
        if "f32" not in self.peak_flops:
            known = ", ".join(self.peak_flops)
            raise InvalidHardware("no rate of f32", where=f"hardware {self.name!r}: peak_flops", got=known)
        for number, tier in enumerate(self.tiers):
            if tier.link not in self.links:
                where, known = f"hardware {self.name!r}: tiers[{number}].link", ", ".join(self.links)
                raise InvalidHardware("unknown link", where=where, got=tier.link, wanted=f"one of {known or 'none'}")
        if not self.tiers:
            raise InvalidHardware("no tiers", where=f"hardware {self.name!r}", wanted="one or more, innermost first")
        rates = {
            "memory_bandwidth": self.memory_bandwidth,
            "memory_bytes": self.memory_bytes,
            **{f"peak_flops.{dtype}": rate for dtype, rate in self.peak_flops.items()},
            **{f"links.{name}.bandwidth": link.bandwidth for name, link in self.links.items()},
        }
        for key, rate in rates.items():
            if not (math.isfinite(rate) and rate > 0):
                raise InvalidHardware("rate", where=f"hardware {self.name!r}: {key}", got=rate, wanted="above 0")
        self._check_overlap()
        if self.op_times not in (None, TRANSFERRED, *list_fitted()):
            where, wanted = f"hardware {self.name!r}: op_times", f"one of {', '.join((TRANSFERRED, *list_fitted()))}"
            raise InvalidHardware("no fitted classes", where=where, got=self.op_times, wanted=wanted)
        for key, share in (("compute", self.compute_efficiency), ("memory", self.memory_efficiency)):
            if not 0 < share <= 1:
                raise InvalidHardware(
                    f"{key}_efficiency",
                    where=f"hardware {self.name!r}",
                    got=share,
                    wanted="above 0, at most 1",
                )

    def _check_overlap(self) -> None:
        if not 0 <= self.overlap <= 1:
            raise InvalidHardware("overlap", where=f"hardware {self.name!r}", got=self.overlap, wanted="0 to 1")
        for link in self.interference:
            if link not in self.links:
                where, known = f"hardware {self.name!r}: interference", ", ".join(self.links)
                raise InvalidHardware("unknown link", where=where, got=link, wanted=f"one of {known}")

    def with_base_latency(self, seconds: float) -> Hardware:
        """Return the profile with another latency of any collective over the link of the outermost tier.

        It is a figure of a cluster's fabric and its software, not of the devices.
        """
        outermost = self.tiers[-1].link
        changed = replace(self.links[outermost], latency_s=seconds)
        return replace(self, links=MappingProxyType({**self.links, outermost: changed}))

    def flops_rate(self, dtype: str) -> float:
        """Return the achievable FLOP/s. Element types without a figure of their own have the rate of f32."""
        return self.peak_flops.get(dtype, self.peak_flops["f32"]) * self.compute_efficiency

    @property
    def bytes_rate(self) -> float:
        return self.memory_bandwidth * self.memory_efficiency

    def op_s(self, op: str, dtype: str, flops: float, *, moved: float, kind: str | None = None) -> float:
        """Return the seconds of an op.

        dtype  element type of its result
        moved  bytes that it reads and writes
        kind   its work class, if it has one
        """
        curves = self.curves.get(f"{op}.{dtype}") or self.curves.get(op)
        if curves is not None:
            return curves.seconds(flops, moved)
        rate, known = self.flops_rate(dtype), self.efficiency.get(kind or "")
        if known is not None and flops:
            rate = self.peak_flops.get(dtype, self.peak_flops["f32"]) * known.at(flops)
        return max(flops / rate, moved / self.bytes_rate) + self.launch_s

    def tier_spans(self, mesh: Mesh) -> tuple[tuple[TierSpan, ...], ...]:
        """Return for each mesh axis how many devices or nodes each link joins, innermost link first.

        Raises InvalidHardware for a link the profile lacks.
        """
        return tuple(self._spans_of_axis(mesh, axis) for axis in range(len(mesh.axes)))

    def _spans_of_axis(self, mesh: Mesh, axis: int) -> tuple[TierSpan, ...]:
        count, named = mesh.shape[axis], mesh.axes[axis].link
        if named is not None:
            if named not in self.links:
                where, wanted = (
                    f"mesh axis {mesh.axes[axis].name!r} on {self.name!r}",
                    f"one of {', '.join(self.links)}",
                )
                raise InvalidHardware("unknown link", where=where, got=named, wanted=wanted)
            joined = {named: count}
        else:
            joined = self._count_joined(math.prod(mesh.shape[axis + 1 :]), count)
        return tuple(TierSpan(link, joined.get(name, 1)) for name, link in self.links.items())

    def _count_joined(self, stride: int, count: int) -> dict[str, int]:
        """Return how many devices of an axis, or groups of them, each tier joins. The last tier joins what is left."""
        joined: dict[str, int] = {}
        for tier in self.tiers[:-1]:
            most = count if tier.devices is None else max(1, min(count, tier.devices // stride))
            held = next(each for each in range(most, 0, -1) if count % each == 0)
            joined[tier.link] = joined.get(tier.link, 1) * held
            stride, count = stride * held, count // held
        last = self.tiers[-1].link
        joined[last] = joined.get(last, 1) * count
        return joined


def list_profiles() -> list[str]:
    """Return the names of the built-in profiles."""
    files = resources.files(__package__).iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def read_source(name: str) -> str:
    """Return the file of a built-in profile, sources included. Raises InvalidHardware for an unknown name."""
    if name not in list_profiles():
        raise InvalidHardware("unknown hardware", got=name, wanted=f"one of {', '.join(list_profiles())}")
    return (resources.files(__package__) / f"{name}.json").read_text()


@lru_cache
def load_profile(name: str) -> Hardware:
    """Load a built-in profile. Raises InvalidHardware for an unknown name."""
    return parse_hardware(json.loads(read_source(name)))


def parse_hardware(raw: Mapping[str, Any]) -> Hardware:
    """Parse a hardware document. Raises InvalidHardware for numbers out of range."""
    return Hardware(
        name=raw["name"],
        peak_flops=MappingProxyType(dict(raw["peak_flops"])),
        compute_efficiency=raw["compute_efficiency"],
        memory_bandwidth=raw["memory_bandwidth"],
        memory_efficiency=raw["memory_efficiency"],
        memory_bytes=raw["memory_bytes"],
        launch_s=raw["launch_s"],
        links=MappingProxyType({key: _parse_link(**link) for key, link in raw["links"].items()}),
        tiers=tuple(Tier(**tier) for tier in raw["tiers"]),
        curves=_parse_each(raw, "curves", _parse_curves),
        efficiency=_parse_each(raw, "efficiency", Efficiency.of),
        op_times=raw.get("op_times"),
        op_corrections=_parse_each(raw, "op_corrections", lambda figures: TimeCorrection(**figures)),
        overlap=raw.get("overlap", 0.0),
        interference=_parse_each(raw, "interference", Interference),
        step_corrections=_parse_each(raw, "step_corrections", lambda figures: TimeCorrection(**figures)),
        power_w=raw.get("power_w"),
    )


def _parse_each(raw: Mapping[str, Any], key: str, parse: Callable[[Any], Parsed]) -> Mapping[str, Parsed]:
    """Parse each entry under a key; errors name the entry."""
    parsed = {}
    for name, entry in raw.get(key, {}).items():
        try:
            parsed[name] = parse(entry)
        except InvalidHardware as error:
            raise error.at(f"hardware {raw['name']!r}: {key}.{name}") from None
    return MappingProxyType(parsed)


def _parse_link(switch: Mapping[str, Any] | None = None, **numbers: float) -> Link:
    return Link(**numbers, switch=InSwitchReduction(**switch) if switch else None)


def _parse_curves(raw: Mapping[str, Any]) -> Curves:
    """Parse curves from points [work, seconds]."""
    return Curves(**{key: Curve(*zip(*points, strict=True)) for key, points in raw.items() if points})
