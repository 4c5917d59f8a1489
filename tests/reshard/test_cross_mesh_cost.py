"""The cost of moving a tensor to another mesh: the slowest tier that a message crosses; none without a link."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.choose.hardware import Tier, load_profile
from planner.choose.hardware.network import exchange_s
from planner.errors import InvalidHardware
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.reshard.cross_mesh import PlacedSharding
from planner.reshard.cross_mesh_cost import CrossMeshReshard

KIND = TensorType((1 << 20,), "f32")
HALVES = Sharding(((0,),))
ISLANDS = replace(load_profile("h100-sxm"), tiers=(Tier("nvlink", 8),))


def handed(*devices: tuple[int, int]) -> CrossMeshReshard:
    places = [PlacedSharding(HALVES, Mesh.parse("2"), each) for each in devices]
    return CrossMeshReshard(places[0], places[1], KIND, load_profile("h100-sxm"))


def test_another_node_costs_more_than_another_device() -> None:
    near, far = handed((0, 1), (2, 3)), handed((0, 1), (8, 9))
    hardware = load_profile("h100-sxm")
    for way, link in ((near, hardware.links["nvlink"]), (far, hardware.links["infiniband"])):
        assert way.time_ps == round(exchange_s(link, 1, 2 << 20) * 1e12)
        assert way.min_bytes == way.received.sum() == 4 << 20


def test_an_unchanged_placement_costs_nothing_and_local_elements_only_a_copy() -> None:
    assert handed((0, 1), (0, 1)).time_ps == 0
    one, whole = (
        PlacedSharding(HALVES, Mesh.parse("2"), (0, 1)),
        PlacedSharding(Sharding(((),)), Mesh.parse("2"), (0, 1)),
    )
    hardware = load_profile("h100-sxm")
    assert 0 < CrossMeshReshard(whole, one, KIND, hardware).time_ps < 6_600_000
    apart = [PlacedSharding(each.sharding, each.mesh, (0, 2)) for each in (whole, one)]
    copied = 2 * (2 << 20) / hardware.bytes_rate + hardware.launch_s
    assert CrossMeshReshard(apart[0], apart[1], KIND, hardware).time_ps == round(copied * 1e12)


def test_devices_without_a_link_are_named() -> None:
    way = replace(handed((6, 7), (8, 9)), hardware=ISLANDS)
    with pytest.raises(InvalidHardware, match=r"no link between devices \(got devices 6 and 8; wanted meshes within"):
        _ = way.time_ps
    assert replace(handed((6, 7), (4, 5)), hardware=ISLANDS).time_ps > 0
    way = replace(handed((0, 8), (1, 17)), hardware=ISLANDS)
    with pytest.raises(InvalidHardware, match="got devices 8 and 17;"):
        _ = way.time_ps
