"""Times of collectives: figures worked out by hand, laws, and fits that recover the network behind measurements."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import list_profiles, load_profile
from planner.choose.hardware.fit import Timing, fit_links
from planner.choose.hardware.network import InSwitchReduction, Link, TierSpan, collective_s, exchange_s
from planner.errors import InvalidHardware
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding

NEAR = Link(1e-5, 100e9, 1e-6, None, 4e-6, InSwitchReduction(2.0, 9e-6, 6))
FAR = Link(2e-5, 10e9, 5e-6, 8e-6, 36e-6)
TREES = replace(NEAR, level_s=1e-6)
MB = 1e6

# kind, devices in a node, nodes, local bytes; latency and steps in us, time of the bytes in us, fill in us
WORKED = [
    (Kind.ALL_GATHER, 4, 1, MB, 10 + 3, 30, 4),
    (Kind.REDUCE_SCATTER, 4, 1, 4 * MB, 10 + 3, 30, 4),
    (Kind.ALL_REDUCE, 4, 1, 4 * MB, 10 + 6, 60, 4),
    (Kind.ALL_REDUCE, 8, 1, 8 * MB, 10 + 14, 70, 9),
    (Kind.ALL_TO_ALL, 4, 1, 4 * MB, 10 + 3, 30, 4),
    (Kind.ALL_GATHER, 1, 4, MB, 20 + 15, 300, 36),
    (Kind.ALL_REDUCE, 1, 8, 8 * MB, 20 + 2 * 24, 1400, 36),
    (Kind.ALL_GATHER, 4, 4, MB, 20 + 12 + 15, 15e6 / 40e9 * 1e6, 36),
    (Kind.ALL_REDUCE, 8, 2, 8 * MB, 20 + 2 * (7 + 8), 8e6 / 80e9 * 1e6, 36),
    (Kind.ALL_REDUCE, 2, 2, 4 * MB, 20 + 2 * (2 + 5), 200, 36),
    (Kind.ALL_REDUCE, 4, 4, 16 * MB, 20 + 2 * (3 + 16), 2 * 15e6 / 40e9 * 1e6, 72),
    (Kind.ALL_TO_ALL, 4, 4, 16 * MB, 20 + 3 + 60, 12e6 / 10e9 * 1e6, 36),
]

KINDS = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE, Kind.ALL_TO_ALL)
SIZES = [(n, k) for n, k in product((1, 2, 3, 8), (1, 2, 4, 5)) if n * k > 1]

# mesh on profiles of nodes of 8: [axis] (devices in a node, nodes)
SPANS = [
    ("8", [(8, 1)]),
    ("16", [(8, 2)]),
    ("2x8", [(1, 2), (8, 1)]),
    ("8x2", [(4, 2), (2, 1)]),
    ("4x4", [(2, 2), (4, 1)]),
    ("3x4", [(1, 3), (4, 1)]),
    ("16x4", [(2, 8), (4, 1)]),
    ("12", [(6, 2)]),
    ("2x12", [(1, 2), (6, 2)]),
]


def seconds(kind: Kind, near: Link, far: Link, devices: int, nodes: int, local: float) -> float:
    return collective_s(kind, (TierSpan(near, devices), TierSpan(far, nodes)), local)


@pytest.mark.parametrize(("kind", "devices", "nodes", "local", "waits", "wire", "fill"), WORKED)
def test_a_collective_takes_what_its_formula_says(
    kind: Kind, devices: int, nodes: int, local: float, waits: float, wire: float, fill: float
) -> None:
    wanted = waits + 2 * math.sqrt(fill * wire) + wire
    assert seconds(kind, NEAR, FAR, devices, nodes, local) * 1e6 == pytest.approx(wanted)


def test_a_collective_of_one_device_takes_no_time() -> None:
    assert seconds(Kind.ALL_REDUCE, NEAR, FAR, 1, 1, MB) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("devices", "nodes"), SIZES)
def test_more_bytes_slower_links_and_longer_latencies_never_take_less(kind: Kind, devices: int, nodes: int) -> None:
    for local in (0.0, 1e3, 1e5, 1e7, 1e9):
        known = seconds(kind, TREES, FAR, devices, nodes, local)
        assert seconds(kind, TREES, FAR, devices, nodes, 2 * local) >= known
        for figure, factor in (
            ("bandwidth", 0.7),
            ("latency_s", 1.5),
            ("step_s", 1.5),
            ("level_s", 1.5),
            ("fill_s", 1.5),
        ):
            near, far = (replace(link, **{figure: getattr(link, figure) * factor}) for link in (TREES, FAR))
            assert seconds(kind, near, FAR, devices, nodes, local) >= known
            assert seconds(kind, TREES, far, devices, nodes, local) >= known


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize(("devices", "nodes"), SIZES)
def test_no_collective_is_faster_than_the_fastest_link(kind: Kind, devices: int, nodes: int) -> None:
    n, local = devices * nodes, 1e8
    received = {Kind.ALL_GATHER: (n - 1) * local, Kind.REDUCE_SCATTER: local * (n - 1) / n}.get(
        kind, local * (n - 1) / n
    )
    assert seconds(kind, NEAR, FAR, devices, nodes, local) >= received / NEAR.peak_bandwidth


def test_an_exchange_of_all_with_all_takes_what_all_to_all_takes() -> None:
    one = collective_s(Kind.ALL_TO_ALL, (TierSpan(NEAR, 8),), 8 * MB)
    assert exchange_s(NEAR, 7, 7 * MB) == pytest.approx(one)


@pytest.mark.parametrize(("text", "spans"), SPANS)
def test_a_mesh_axis_runs_over_the_links_of_its_devices(text: str, spans: list[tuple[int, int]]) -> None:
    for name in ("h100-sxm", "a100-sxm"):
        found = load_profile(name).tier_spans(Mesh.parse(text))
        assert [tuple(each.fanout for each in axis[:2]) for axis in found] == spans
        assert all(each.fanout == 1 for axis in found for each in axis[2:])


def test_devices_in_one_order_cost_alike_as_one_axis_and_as_two() -> None:
    one, two = (load_profile("h100-sxm").tier_spans(Mesh.parse(text)) for text in ("16", "2x8"))
    for kind in KINDS:
        both = [TierSpan(each[0].link, math.prod(part.fanout for part in each)) for each in zip(*two, strict=True)]
        assert collective_s(kind, one[0], MB) == collective_s(kind, both, MB)


@pytest.mark.parametrize("elements", [16, 1 << 12, 1 << 24])
def test_a_collective_over_two_axes_takes_no_longer_than_one_ring_or_one_axis_after_the_other(elements: int) -> None:
    model, kind = CostModel(Mesh.parse("2x8"), load_profile("a100-sxm-cluster")), TensorType((elements,), "f32")
    split, inner = Sharding(((0, 1),)), Collective(Kind.ALL_GATHER, (1,), 0)
    apart = model.move_ps(inner, split, kind)
    apart += model.move_ps(Collective(Kind.ALL_GATHER, (0,), 0), inner.target(split), kind)
    ring = [
        TierSpan(each[0].link, math.prod(part.fanout for part in each)) for each in zip(*model.tier_spans, strict=True)
    ]
    together = collective_s(Kind.ALL_GATHER, ring, elements / 4) * 1e12
    assert model.move_ps(Collective(Kind.ALL_GATHER, (0, 1), 0), split, kind) <= min(apart, together) + 1


def test_a_link_named_by_the_mesh_is_the_axis_whole_link() -> None:
    mesh = Mesh.parse("2x8")
    named = replace(mesh, axes=(replace(mesh.axes[0], link="efa"), replace(mesh.axes[1], link="nvlink")))
    model = CostModel(named, load_profile("h100-sxm"))
    assert model.links == (model.hardware.links["efa"], model.hardware.links["nvlink"])
    with pytest.raises(InvalidHardware, match="unknown link"):
        load_profile("h100-sxm").tier_spans(replace(mesh, axes=(replace(mesh.axes[0], link="string"), mesh.axes[1])))


@pytest.mark.parametrize("name", list_profiles())
def test_a_wider_ring_inside_a_node_gathers_no_faster(name: str) -> None:
    links = tuple(load_profile(name).links.values())
    times = [collective_s(Kind.ALL_GATHER, (TierSpan(links[0], n),), MB) for n in range(1, 9)]
    assert times == sorted(times)


def test_a_fit_finds_the_links_that_made_the_measurements() -> None:
    made = [
        Timing(
            kind,
            counts,
            size,
            collective_s(kind, [TierSpan(*each) for each in zip((NEAR, FAR), counts, strict=True)], size),
        )
        for kind in KINDS
        for counts in ((8, 1), (4, 1), (8, 2), (8, 4), (8, 16))
        for size in (1e3, 1e5, 1e6, 1e7, 1e8, 1e9)
    ]
    start = (Link(3e-5, 70e9, 3e-6, None, 1e-5, InSwitchReduction(1.2, 3e-6, 6)), Link(1e-5, 20e9, 2e-6, 3e-6, 1e-5))
    found = fit_links(start, made, rounds=80)
    assert np.mean([each.error(found) for each in made]) < 0.01
    assert [link.bandwidth / 1e9 for link in found] == pytest.approx([100, 10], rel=0.03)


def test_a_figure_that_no_measurement_depends_on_stays() -> None:
    made = [Timing(Kind.ALL_GATHER, (8, 1), 1e6, 1e-4)]
    assert fit_links((NEAR, FAR), made, rounds=5)[1] == FAR


def test_large_messages_alone_determine_bandwidth_but_not_latency() -> None:
    sizes = [2.0**k for k in range(21, 31)]
    made = [Timing(Kind.ALL_GATHER, (8,), size, seconds(Kind.ALL_GATHER, NEAR, FAR, 8, 1, size)) for size in sizes]
    slower = replace(NEAR, bandwidth=50e9, latency_s=1e-3)
    (found,) = fit_links((slower,), made)
    assert found == replace(slower, bandwidth=found.bandwidth) != slower
    (waits,) = fit_links((slower,), [*made, *(replace(each, local_bytes=1e3) for each in made)])
    assert waits.latency_s != slower.latency_s


def test_steps_of_rings_and_levels_of_trees_are_fitted_to_collectives_that_take_them_alone() -> None:
    start = (NEAR, Link(1e-5, 10e9, 2e-6, 3e-6, 36e-6))
    for kind, kept in ((Kind.ALL_REDUCE, "step_s"), (Kind.ALL_GATHER, "level_s")):
        made = [Timing(kind, (8, 2), size, seconds(kind, NEAR, FAR, 8, 2, size)) for size in (10.0, 1e2, 1e3, 1e4) * 2]
        (_, found) = fit_links(start, made, held=1)
        assert getattr(found, kept) == getattr(start[1], kept)
        assert found.latency_s != start[1].latency_s


def test_an_all_reduce_among_nodes_takes_as_long_with_one_device_each_but_for_the_chain_inside() -> None:
    alone, whole = (seconds(Kind.ALL_REDUCE, NEAR, FAR, devices, 64, 0.0) for devices in (1, 8))
    assert alone == pytest.approx(20e-6 + 2 * 6 * 8e-6)
    assert whole - alone == pytest.approx(2 * 7 * 1e-6)
