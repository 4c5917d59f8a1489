"""Chains of moves between any two shardings: correct on data, shortest in time, their buffers counted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from heapq import heappop, heappush
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.edge_matrices import PairKinds
from planner.choose.hardware import Hardware, load_profile
from planner.errors import InvalidSharding
from planner.ir.basis_moves import list_basis_moves
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.all_pairs import AllPairsResharding
from planner.reshard.resharding_graph import UNREACHABLE, ReshardingGraph, SplitShape
from tests.testing.collective_chains import apply_chain
from tests.testing.layout_oracle import agree, layouts, shard_array, unshard_array

# mesh, shape, kinds of partial sums
TABLES = [
    ("1", (4,), ()),
    ("4", (8, 8), (Reduction.SUM,)),
    ("4", (6,), (Reduction.SUM, Reduction.MAX)),
    ("2x3", (12, 6), (Reduction.SUM, Reduction.MAX)),
    ("3x2", (7, 5), (Reduction.SUM,)),
    ("1x4", (5, 8), (Reduction.SUM,)),
    ("2x2x2", (16, 8), (Reduction.SUM,)),
    ("2x2x2", (7,), (Reduction.SUM, Reduction.MAX)),
    ("2x2x3", (5, 4, 6), ()),
]
HARDWARE = ["h100-sxm", "cpu"]
IDS = [f"{mesh} {list(shape)} {'+'.join(kinds)}" for mesh, shape, kinds in TABLES]


@cache
def table(
    mesh: str, shape: tuple[int, ...], kinds: tuple[Reduction, ...], hardware: str = "h100-sxm"
) -> AllPairsResharding:
    return AllPairsResharding.of(TensorType(shape, "f32"), kinds, CostModel(Mesh.parse(mesh), load_profile(hardware)))


@pytest.mark.parametrize(("mesh", "shape", "kinds"), TABLES, ids=IDS)
def test_the_table_holds_every_sharding(mesh: str, shape: tuple[int, ...], kinds: tuple[Reduction, ...]) -> None:
    found = table(mesh, shape, kinds).states
    assert len(set(found)) == len(found)
    assert set(found) == set(layouts(len(shape), Mesh.parse(mesh), shape, kinds))


ALIKE = [
    *(("2x2x2", (64, 6, 24)), ("2x3", (12, 6)), ("2x3", (9, 4)), ("4", (5, 1024)), ("2x2x2", (7, 3))),
    *(
        ("2x2x2", (64, 64)),
        ("4x2x3", (24, 48)),
        ("1x2x2", (64, 64)),
        ("2x4x1", (8, 4)),
        ("3x2", (9, 4)),
        ("4x2x3", (24, 7)),
    ),
]


@pytest.mark.parametrize(("mesh", "shape"), ALIKE)
def test_tensors_that_the_mesh_splits_alike_have_the_same_moves(mesh: str, shape: tuple[int, ...]) -> None:
    devices = Mesh.parse(mesh)
    web = ReshardingGraph.of(SplitShape.of(shape, (Reduction.SUM,), devices))
    assert set(web.states) == set(layouts(len(shape), devices, shape, (Reduction.SUM,)))
    for state, found in zip(web.states, web.moves, strict=True):
        wanted = [(move, to) for move, to in list_basis_moves(state, shape, devices) if to in web.states]
        assert [(move, web.states[to]) for move, to in found] == wanted


def reachable(source: Sharding, target: Sharding) -> bool:
    """What is not partial cannot become so, and a partial sum does not become a partial maximum."""
    return set(target.partial) <= set(source.partial) and (not target.partial or target.reduction is source.reduction)


@pytest.mark.parametrize(("mesh", "shape", "kinds"), TABLES, ids=IDS)
def test_every_layout_reaches_every_other(mesh: str, shape: tuple[int, ...], kinds: tuple[Reduction, ...]) -> None:
    found, reached = table(mesh, shape, kinds), 0
    for source in found.states:
        for target in found.states:
            time = found.time[found.index[source], found.index[target]]
            assert (time < UNREACHABLE) == reachable(source, target), f"{source} -> {target}"
            if reachable(source, target):
                at = source
                for move in found.shortest_path(source, target):
                    at = move.target(at)
                assert at == target
                reached += 1
    assert reached >= len(found.states)


@pytest.mark.parametrize(("mesh", "shape", "kinds"), TABLES, ids=IDS)
def test_a_chain_brings_the_data_where_the_target_says(
    mesh: str, shape: tuple[int, ...], kinds: tuple[Reduction, ...]
) -> None:
    found, devices, random = table(mesh, shape, kinds), Mesh.parse(mesh), np.random.default_rng(0)
    whole = random.standard_normal(shape)
    pairs = [(s, t) for s in found.states for t in found.states if reachable(s, t)]
    for number in random.choice(len(pairs), min(len(pairs), 250), replace=False):
        source, target = pairs[number]
        held = shard_array(whole, source, devices, random)
        got, at, _ = apply_chain(held, found.shortest_path(source, target), source, shape, devices)
        assert at == target
        assert agree(unshard_array(got, target, shape, devices), whole), f"{source} -> {target}"


@pytest.mark.parametrize("sharding", layouts(2, Mesh.parse("2x3"), (12, 6), (Reduction.SUM, Reduction.MAX)), ids=str)
def test_no_move_leads_from_a_sharding_to_itself(sharding: Sharding) -> None:
    found = table("2x3", (12, 6), (Reduction.SUM, Reduction.MAX))
    assert found.shortest_path(sharding, sharding) == []
    assert found.time[found.index[sharding], found.index[sharding]] == 0


def test_there_is_no_way_into_a_partial_sum() -> None:
    with pytest.raises(InvalidSharding, match=r"no way to reshard \(got \[\[\],\[\]\]; wanted .*partial=sum\[0\]"):
        table("4", (8, 8), (Reduction.SUM,)).shortest_path(Sharding.replicated(2), Sharding(((), ()), (0,)))


def steps(found: AllPairsResharding, kind: TensorType, model: CostModel) -> dict[Sharding, list[tuple[int, Sharding]]]:
    """What one collective leads to, and its time: the basis moves, and an exchange between any two alike partial."""
    every: dict[Sharding, list[tuple[int, Sharding]]] = {}
    for at in found.states:
        alike = [to for to in found.states if (to.partial, to.reduction) == (at.partial, at.reduction) and to != at]
        times = model.exchanges_ps([at], alike, kind)[0].tolist() if alike else []
        basis = [(model.move_ps(move, at, kind), to) for move, to in list_basis_moves(at, kind.shape, model.mesh)]
        every[at] = [*((t, to) for t, to in basis if to in found.index), *zip(times, alike, strict=True)]
    return every


def shortest(source: Sharding, every: dict[Sharding, list[tuple[int, Sharding]]]) -> dict[Sharding, int]:
    """Dijkstra's algorithm, one collective at a time."""
    done: dict[Sharding, int] = {}
    waiting = [(0, source)]
    while waiting:
        time, at = heappop(waiting)
        if at in done:
            continue
        done[at] = time
        for taken, target in every[at]:
            heappush(waiting, (time + taken, target))
    return done


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize(("mesh", "shape", "kinds"), TABLES[:-1], ids=IDS[:-1])
def test_times_are_those_of_the_shortest_ways(
    hardware: str, mesh: str, shape: tuple[int, ...], kinds: tuple[Reduction, ...]
) -> None:
    found, kind = table(mesh, shape, kinds, hardware), TensorType(shape, "f32")
    model = CostModel(Mesh.parse(mesh), load_profile(hardware))
    every = steps(found, kind, model)
    for row, source in enumerate(found.states):
        wanted = shortest(source, every)
        assert found.time[row].tolist() == [wanted.get(target, UNREACHABLE) for target in found.states]


@pytest.mark.parametrize(("mesh", "shape", "kinds"), TABLES, ids=IDS)
def test_a_chain_takes_the_time_the_table_says(mesh: str, shape: tuple[int, ...], kinds: tuple[Reduction, ...]) -> None:
    found, kind = table(mesh, shape, kinds), TensorType(shape, "f32")
    model = CostModel(Mesh.parse(mesh), load_profile("h100-sxm"))
    for source in found.states:
        for target in filter(lambda t: reachable(source, t), found.states):
            at, time = source, 0
            for move in found.shortest_path(source, target):
                time, at = time + model.move_ps(move, at, kind), move.target(at)
            assert time == found.time[found.index[source], found.index[target]]


@pytest.mark.parametrize(("mesh", "shape", "kinds"), TABLES, ids=IDS)
def test_peaks_are_those_of_a_chain_that_frees_what_it_has_read(
    mesh: str, shape: tuple[int, ...], kinds: tuple[Reduction, ...]
) -> None:
    found = table(mesh, shape, kinds)
    pairs = PairKinds.of(found)
    names = ("through", "beside", "copy", "changed", "source", "time")
    tables = {what: pairs.entries[what][pairs.of_pair] for what in names}
    size = dict(zip(found.states, found.bytes.tolist(), strict=True))
    for i, source in enumerate(found.states):
        for j, target in enumerate(found.states):
            if not reachable(source, target):
                continue
            held = [source]
            for move in found.shortest_path(source, target):
                held.append(move.target(held[-1]))
            sizes = [size[state] for state in held]
            made = sizes[1:]
            beside = max([before + after for before, after in pairwise(made)] + made, default=0)
            through = max([before + after for before, after in pairwise(sizes)] + sizes[-1:])
            assert {what: int(each[i, j]) for what, each in tables.items()} == {
                "through": through,
                "beside": beside,
                "copy": sizes[-1],
                "changed": sizes[-1] if made else 0,
                "source": sizes[0],
                "time": found.time[i, j],
            }


@pytest.mark.parametrize(("mesh", "shape", "kinds"), TABLES, ids=IDS)
def test_a_detour_is_never_shorter(mesh: str, shape: tuple[int, ...], kinds: tuple[Reduction, ...]) -> None:
    time = table(mesh, shape, kinds).time
    for middle in range(len(time)):
        assert (time <= time[:, middle, None] + time[None, middle, :]).all()


def slower(hardware: Hardware, link: str | None) -> Hardware:
    """The same devices with half the bandwidth of one link, or of the memory."""
    if link is None:
        return replace(hardware, memory_bandwidth=hardware.memory_bandwidth / 2)
    links = dict(hardware.links)
    links[link] = replace(links[link], bandwidth=links[link].bandwidth / 2)
    return replace(hardware, links=MappingProxyType(links))


@pytest.mark.parametrize("link", ["nvlink", "infiniband", None])
@pytest.mark.parametrize(("mesh", "size"), [("2x3", 6), ("4x4", 4096), ("2x16", 4096), ("2x2x4", 1 << 14)])
def test_no_way_gets_shorter_when_a_bandwidth_falls(mesh: str, size: int, link: str | None) -> None:
    kind, fast = TensorType((size, size), "bf16"), load_profile("h100-sxm")
    before, after = (
        AllPairsResharding.of(kind, [Reduction.SUM], CostModel(Mesh.parse(mesh), hardware))
        for hardware in (fast, slower(fast, link))
    )
    assert (after.time >= before.time).all()


# A dim in more parts than it has elements is legal, and reached where it is asked for.
CROWDED = [
    ("2x3", (3, 6), Sharding(((0, 1), ())), Sharding(((), (0, 1)))),
    ("2x3", (3, 6), Sharding(((0,), (1,))), Sharding(((1, 0), ()))),
    ("4", (3,), Sharding(((),), (0,)), Sharding(((0,),))),
    ("2x2", (1, 2), Sharding(((0,), (1,))), Sharding(((1, 0), ()))),
]


@pytest.mark.parametrize(("mesh", "shape", "source", "target"), CROWDED)
def test_empty_shards_are_moved_too(mesh: str, shape: tuple[int, ...], source: Sharding, target: Sharding) -> None:
    devices, random = Mesh.parse(mesh), np.random.default_rng(0)
    model = CostModel(devices, load_profile("h100-sxm"))
    found = AllPairsResharding.of(TensorType(shape, "f32"), [Reduction.SUM], model, (source, target))
    whole = random.standard_normal(shape)
    held = shard_array(whole, source, devices, random)
    got, at, _ = apply_chain(held, found.shortest_path(source, target), source, shape, devices)
    assert at == target
    assert agree(unshard_array(got, target, shape, devices), whole)


def test_a_sharding_that_the_table_does_not_hold_is_refused() -> None:
    held, other = Sharding.replicated(2), Sharding(((1,), ()))
    for source, target in ((held, other), (other, held)):
        with pytest.raises(InvalidSharding, match="no way to reshard"):
            table("4", (8, 8), (Reduction.SUM,)).shortest_path(source, target)
