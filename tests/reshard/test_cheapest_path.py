"""Programs between two shardings: the cheapest by time and by bytes, within a limit, and correct on data."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.errors import InvalidRequest
from planner.ir.accounting import count_held_bytes
from planner.ir.basis_moves import list_basis_moves
from planner.ir.collectives import Collective, count_received_elements
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.redistribution import exchange_axes
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.cheapest_path import Objective, ReshardPath, find_cheapest_path
from planner.reshard.missing_elements import MissingElements
from tests.testing.collective_chains import apply_chain
from tests.testing.layout_oracle import agree, shard_array, unshard_array
from tests.testing.random_reshards import KINDS, MESHES, count_least_elements, random_reshard
from tests.testing.random_shardings import random_sharding
from tests.testing.seeds import batches, seeds

SEEDS = seeds(150)
# mesh, hardware, shape, ends: from one kind of partial to another, where bytes alone do not tell the ways apart
PARTIAL: list[tuple[str, str, tuple[int, ...], Sharding, Sharding]] = [
    (
        "2x8", "h100-sxm", (7,),
        Sharding(((),), (0,), Reduction.MAX), Sharding(((),), (1,), Reduction.MAX),
    ),
    (
        "4x4", "h100-sxm", (16, 8),
        Sharding(((), ()), (0, 1), Reduction.SUM), Sharding(((), (1,))),
    ),
]  # fmt: skip
HARDWARE = ["h100-sxm", "a100-sxm-cluster", "cpu"]
Price = Callable[[Collective, Sharding], Any]


def random_case(seed: int) -> tuple[Sharding, Sharding, TensorType, CostModel]:
    random = np.random.default_rng(seed)
    mesh = Mesh.parse(MESHES[random.integers(0, len(MESHES))])
    scale = int(random.choice([1, 1, 64, 512]))
    shape = tuple((random.integers(1, 9, random.integers(0, 4)) * scale).tolist())
    ends = [random_sharding(shape, mesh, KINDS, random).checked(shape, mesh) for _ in range(2)]
    return ends[0], ends[1], TensorType(shape, "f32"), CostModel(mesh, load_profile(HARDWARE[seed % 3]))


def steps(at: Sharding, target: Sharding, kind: TensorType, mesh: Mesh) -> list[Collective]:
    """All basis moves; exchanges to the target; from halos and offsets one to plain blocks."""
    plain = Sharding(at.split_axes, at.partial, at.reduction)
    more = (
        [move for move, _ in list_basis_moves(at, kind.shape, mesh)]
        if plain == at
        else [Collective.exchange(at, plain)]
    )
    return [*(Collective.exchange(at, target, axes) for axes in exchange_axes(at, target, mesh)), *more]


def least(
    source: Sharding, target: Sharding, kind: TensorType, model: CostModel, price: Price, limit: int | None = None
) -> Any:
    """Dijkstra's algorithm over everything that can be reached; None where nothing fits."""
    done, waiting, number = set[Sharding](), [((0, 0), 0, source)], 1
    while waiting:
        cost, _, at = heappop(waiting)
        if at == target:
            return cost
        if at in done:
            continue
        done.add(at)
        for move in steps(at, target, kind, model.mesh):
            to = move.target(at)
            room = count_held_bytes(at, kind, model.mesh) + count_held_bytes(to, kind, model.mesh)
            if to not in done and (limit is None or room.max() <= limit):
                heappush(waiting, (tuple(np.add(cost, price(move, at)).tolist()), number, to))
                number += 1
    return None


def pricing(kind: TensorType, model: CostModel, objective: Objective) -> Price:
    def price(move: Collective, at: Sharding) -> tuple[int, int]:
        time = model.move_ps(move, at, kind)
        if objective is Objective.TIME:
            return time, 0
        return int(count_received_elements(move, at, kind.shape, mesh=model.mesh).sum()) * kind.itemsize, time

    return price


def cost_of(found: ReshardPath, objective: Objective) -> tuple[int, int]:
    time = sum(found.times_ps)
    return (time, 0) if objective is Objective.TIME else (int(found.received.sum()), time)


def cheapest(
    source: Sharding, target: Sharding, kind: TensorType, model: CostModel, objective: Objective
) -> ReshardPath:
    """The program found, which is none but the cheapest."""
    found = find_cheapest_path(source, target, kind, model=model, objective=objective)
    assert found.states[-1] == target
    assert cost_of(found, objective) == least(source, target, kind, model, pricing(kind, model, objective))
    return found


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", SEEDS)
def test_no_program_is_cheaper(seed: int, objective: Objective) -> None:
    source, target, kind, model = random_case(seed)
    found = cheapest(source, target, kind, model, objective)
    assert found.bound_ps <= sum(found.times_ps) + 1
    assert found.min_bytes <= found.bound_bytes <= found.received.sum()
    if not source.partial:
        assert found.bound_bytes == found.min_bytes


# mesh, shape, ends, bytes: partial sums with replicas; each group of replicas alone would move more
REPLICAS = [
    ("3x2", (8,), Sharding(((),), (0,)), Sharding(((),)), 224),
    ("4x2", (8,), Sharding(((),), (0,)), Sharding(((),)), 320),
    ("4x2", (4,), Sharding(((),), (0,)), Sharding(((1,),)), 96),
]


@pytest.mark.parametrize(("mesh", "shape", "source", "target", "size"), REPLICAS)
def test_replicas_share_one_reduction_where_bytes_are_least(
    mesh: str, shape: tuple[int, ...], source: Sharding, target: Sharding, size: int
) -> None:
    model = CostModel(Mesh.parse(mesh), load_profile("h100-sxm"))
    found = find_cheapest_path(source, target, TensorType(shape, "f32"), model=model, objective=Objective.BYTES)
    assert found.received.sum() == size == count_least_elements(source, target, shape, model.mesh) * 4


@pytest.mark.parametrize("batch", batches(2000, 50))
def test_the_bytes_are_the_least_that_the_elements_allow(batch: list[int]) -> None:  # conformance 107
    for seed in batch:
        source, target, kind, model = random_reshard(seed)
        found = find_cheapest_path(source, target, kind, model=model, objective=Objective.BYTES)
        least_bytes = count_least_elements(source, target, kind.shape, model.mesh) * kind.itemsize
        assert found.bound_bytes <= found.received.sum() == least_bytes, seed
        if not source.partial:
            wanted = count_held_bytes(target, kind, model.mesh)
            assert (found.received.sum(axis=0) <= wanted).all(), seed


@pytest.mark.parametrize(("mesh", "hardware", "shape", "source", "target"), PARTIAL)
def test_of_paths_with_equal_bytes_the_fastest_is_found(
    mesh: str, hardware: str, shape: tuple[int, ...], source: Sharding, target: Sharding
) -> None:
    model = CostModel(Mesh.parse(mesh), load_profile(hardware))
    assert len(cheapest(source, target, TensorType(shape, "f32"), model, Objective.BYTES).moves) > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_within_a_limit_the_cheapest_that_fits_is_found(seed: int) -> None:
    source, target, kind, model = random_case(seed)
    peaks = {
        found.peak_bytes
        for found in (find_cheapest_path(source, target, kind, model=model, objective=each) for each in Objective)
    }
    for limit in sorted({*peaks, *(peak - 1 for peak in peaks), max(peaks) * 3 // 4}):
        wanted = least(source, target, kind, model, pricing(kind, model, Objective.TIME), limit)
        if source == target and limit < max(peaks):
            wanted = None
        if wanted is None:
            with pytest.raises(InvalidRequest, match=r"no program fits the memory limit .*wanted at least") as refused:
                find_cheapest_path(source, target, kind, model=model, limit_bytes=limit)
            enough = int(str(refused.value.wanted).split()[2])
            assert enough > limit
            assert find_cheapest_path(source, target, kind, model=model, limit_bytes=enough).peak_bytes == enough
        else:
            found = find_cheapest_path(source, target, kind, model=model, limit_bytes=limit)
            assert cost_of(found, Objective.TIME) == wanted
            assert found.peak_bytes <= limit


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_brings_the_data_where_the_target_says(seed: int, objective: Objective) -> None:
    random = np.random.default_rng(seed)
    source, target, kind, model = random_case(3 * seed + 1)
    small = tuple(min(size, 24) for size in kind.shape)
    if small != kind.shape:
        source, target = (Sharding(each.split_axes, each.partial, each.reduction) for each in (source, target))
        kind = TensorType(small, "f32")
    found = find_cheapest_path(source, target, kind, model=model, objective=objective)
    whole = np.asarray(random.standard_normal(kind.shape))
    held = shard_array(whole, source, model.mesh, random)
    got, at, received = apply_chain(held, found.moves, source, kind.shape, model.mesh)
    assert at == target
    assert agree(np.asarray(unshard_array(got, target, kind.shape, model.mesh)), whole)
    assert (received * kind.itemsize).tolist() == found.received.sum(axis=0).tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_missing_elements_fall_by_no_more_than_is_received(seed: int) -> None:
    source, target, kind, model = random_case(seed)
    for joined in [(), *((axis,) for axis in range(len(model.mesh.shape)))]:
        lacking = MissingElements(target, kind.shape, model.mesh, joined)
        assert lacking.total(target) == 0
        for move in steps(source, target, kind, model.mesh):
            received = count_received_elements(move, source, kind.shape, mesh=model.mesh).sum()
            assert lacking.total(source) <= received + lacking.total(move.target(source)), str(move)


def test_an_empty_exchange_takes_no_round() -> None:
    model, half = CostModel(Mesh.parse("2"), load_profile("h100-sxm")), Sharding(((0,),))
    found = find_cheapest_path(half, half, TensorType((4,), "f32"), model=model)
    assert (found.moves, found.peak_bytes, found.received.size) == ((), 8, 0)


def test_a_replicated_tensor_is_cut_before_it_is_gathered_where_room_is_short() -> None:
    model = CostModel(Mesh.parse("8"), load_profile("h100-sxm"))
    found = find_cheapest_path(Sharding(((), ())), Sharding(((0,), ())), TensorType((64, 64), "f32"), model=model)
    assert [move.kind for move in found.moves] == ["all_slice"]
    assert [before.sum() > after.sum() for before, after in pairwise(found.buffer_bytes)] == [True]
