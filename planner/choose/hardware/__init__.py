"""Hardware profiles: what a device can do and how it is linked, as data with a source for every number.

A profile names its links and the tiers of its network, innermost first: a mesh axis runs over the first tier
whose `devices` hold it together with all axes after it, unless the mesh names a link for the axis.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from planner.errors import InvalidHardware
from planner.model.mesh import Mesh

DEFAULT = "h100-sxm"


@dataclass(frozen=True, slots=True)
class Link:
    """Bus bandwidth in B/s per device and direction; latency in s of one step of a ring."""

    latency_s: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Tier:
    """A level of the network: up to `devices` devices (None: any number) joined by a link."""

    link: str
    devices: int | None


@dataclass(frozen=True)
class Hardware:
    """One profile. Rates are per device: flop/s by dtype, B/s; times in s; memory in bytes."""

    name: str
    peak_flops: Mapping[str, float]
    compute_efficiency: float
    memory_bandwidth: float
    memory_efficiency: float
    memory_bytes: int
    launch_s: float
    collective_launch_s: float
    links: Mapping[str, Link]
    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        rates = {
            "memory_bandwidth": self.memory_bandwidth,
            "memory_bytes": self.memory_bytes,
            **{f"peak_flops.{dtype}": rate for dtype, rate in self.peak_flops.items()},
            **{f"links.{name}.bandwidth": link.bandwidth for name, link in self.links.items()},
        }
        for key, rate in rates.items():
            if not (math.isfinite(rate) and rate > 0):
                raise InvalidHardware("rate", where=f"hardware {self.name!r}: {key}", got=rate, wanted="above 0")
        for key, share in (("compute", self.compute_efficiency), ("memory", self.memory_efficiency)):
            if not 0 < share <= 1:
                raise InvalidHardware(
                    f"{key}_efficiency",
                    where=f"hardware {self.name!r}",
                    got=share,
                    wanted="above 0, at most 1",
                )

    def flops_rate(self, dtype: str) -> float:
        """Achievable flop/s; element types without a figure of their own run at the f32 rate."""
        return self.peak_flops.get(dtype, self.peak_flops["f32"]) * self.compute_efficiency

    @property
    def bytes_rate(self) -> float:
        return self.memory_bandwidth * self.memory_efficiency

    def axis_links(self, mesh: Mesh) -> tuple[Link, ...]:
        """The link of every mesh axis. Raises InvalidHardware for a link the profile lacks."""
        return tuple(self._link(mesh, axis) for axis in range(len(mesh.axes)))

    def _link(self, mesh: Mesh, axis: int) -> Link:
        name = mesh.axes[axis].link
        if name is None:
            span = math.prod(mesh.shape[axis:])
            name = next((t.link for t in self.tiers if t.devices is None or span <= t.devices), self.tiers[-1].link)
        if name not in self.links:
            raise InvalidHardware(
                "unknown link",
                where=f"mesh axis {mesh.axes[axis].name!r} on {self.name!r}",
                got=name,
                wanted=f"one of {', '.join(self.links)}",
            )
        return self.links[name]


def names() -> list[str]:
    """Names of the built-in profiles."""
    files = resources.files(__package__).iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def source_text(name: str) -> str:
    """The file of a built-in profile, sources included. Raises InvalidHardware for a name there is none of."""
    if name not in names():
        raise InvalidHardware("unknown hardware", got=name, wanted=f"one of {', '.join(names())}")
    return (resources.files(__package__) / f"{name}.json").read_text()


@lru_cache
def load(name: str) -> Hardware:
    """A built-in profile. Raises InvalidHardware for a name there is none of."""
    raw = json.loads(source_text(name))
    return Hardware(
        name=name,
        peak_flops=MappingProxyType(raw["peak_flops"]),
        compute_efficiency=raw["compute_efficiency"],
        memory_bandwidth=raw["memory_bandwidth"],
        memory_efficiency=raw["memory_efficiency"],
        memory_bytes=raw["memory_bytes"],
        launch_s=raw["launch_s"],
        collective_launch_s=raw["collective_launch_s"],
        links=MappingProxyType({key: Link(**link) for key, link in raw["links"].items()}),
        tiers=tuple(Tier(**tier) for tier in raw["tiers"]),
    )
