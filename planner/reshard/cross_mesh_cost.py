"""The cost of moving a tensor from one mesh to another: an exchange between numbered devices of one network.

Devices i and j communicate over the innermost tier of the hardware's network with i // n == j // n, where n is the
number of devices of the tier. The exchange takes the time of its messages and of the bytes that the busiest device
receives or sends, on the slowest tier that a message crosses (`planner.choose.hardware.network`). Where nothing is
sent it is a local copy, as on one mesh (`planner.choose.cost`). Links that a mesh names for its axes are not used: they
say nothing about the connection to another mesh.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import PICO
from planner.choose.hardware import Hardware
from planner.choose.hardware.network import Link, exchange_s
from planner.errors import InvalidHardware
from planner.ir.graph import TensorType
from planner.ir.sharding import shard_shapes
from planner.ir.transfers import Transfers
from planner.reshard.cross_mesh import PlacedSharding, plan_cross_mesh_transfers

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CrossMeshReshard:
    """The exchange of a tensor between two meshes; both shardings are checked against its shape."""

    source: PlacedSharding
    target: PlacedSharding
    kind: TensorType
    hardware: Hardware

    @cached_property
    def transfers(self) -> Transfers:
        return plan_cross_mesh_transfers(self.source, self.target, self.kind.shape)

    @cached_property
    def received(self) -> Integers:
        """The bytes that each device receives, by device number."""
        received: Integers = self.transfers.received * self.kind.itemsize
        return received

    @cached_property
    def buffer_bytes(self) -> Integers:
        """The bytes that each device holds before and after, `[2, devices]` by device number."""
        ends = [
            (place, shard_shapes(place.sharding, self.kind.shape, place.mesh)) for place in (self.source, self.target)
        ]
        held = [place.scatter_by_number(shapes.prod(axis=1), self.transfers.devices) for place, shapes in ends]
        return np.stack(held) * self.kind.itemsize

    @property
    def min_bytes(self) -> int:
        """A lower bound on the bytes moved: what devices want and do not hold; of a partial tensor, all they want."""
        ends = self.transfers.endpoints
        low = np.maximum(ends.held[..., 0], ends.wanted[..., 0])
        high = np.minimum(ends.held[..., 1], ends.wanted[..., 1])
        wanted = (ends.wanted[..., 1] - ends.wanted[..., 0]).prod(axis=1) * ends.is_receiver
        kept = np.maximum(high - low, 0).prod(axis=1) * (ends.is_receiver & ends.is_holder) * (ends.terms == 1)
        return int((wanted - kept).sum()) * self.kind.itemsize

    @cached_property
    def time_ps(self) -> int:
        """The time in ps. Raises InvalidHardware where the hardware's network does not join two devices."""
        done = self.transfers
        if self.source == self.target:
            return 0
        busiest = int(max(done.received.max(), done.sent.max())) * self.kind.itemsize
        if not busiest:
            return round(
                (2 * int(self.buffer_bytes[1].max()) / self.hardware.bytes_rate + self.hardware.launch_s) / PICO
            )
        link = self._slowest()
        count = int(np.max(sum(np.bincount(each.receiver, minlength=done.devices) for each in done.messages)))
        return round(exchange_s(link, count, busiest) / PICO)

    def _slowest(self) -> Link:
        pairs = np.concatenate([np.stack([each.sender, each.receiver]) for each in self.transfers.messages], axis=1)
        apart = np.zeros(0, bool)
        for tier in self.hardware.tiers:
            apart = pairs[0] // tier.devices != pairs[1] // tier.devices if tier.devices else np.zeros(0, bool)
            if not apart.any():
                return self.hardware.links[tier.link]
        one, other = pairs[:, int(apart.argmax())].tolist()
        where, got = f"hardware {self.hardware.name!r}", f"devices {one} and {other}"
        raise InvalidHardware("no link between devices", where=where, got=got, wanted="meshes within one network")
