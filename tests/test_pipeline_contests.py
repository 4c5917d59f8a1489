"""The planners of the pipeline contests find what trying every plan finds, by pricing that is written a second time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from benchmarks.pipeline_contests import Piper, Placement, Table, TooManyDownSets, list_down_sets
from tests.testing.seeds import seeds

DEVICES, BATCH, BANDWIDTH = 3, 4, 2.0


def random_edges(random: np.random.Generator, count: int) -> list[tuple[int, int]]:
    return [pair for pair in combinations(range(count), 2) if pair[1] == pair[0] + 1 or random.random() < 0.2]


def random_piper(random: np.random.Generator, count: int) -> Table:
    edges = random_edges(random, count)

    def variant(layer: int) -> dict[str, Any]:
        return {
            "timePerSample": float(random.integers(1, 9)),
            "parameterSize": float(random.integers(0, 5)),
            "memoryUsageA": float(random.integers(0, 4)),
            "memoryUsageB": float(random.integers(0, 4)),
            "syncTimeFw": {str(a): float(random.integers(0, 3)) for a, b in edges if b == layer},
            "syncTimeBw": {str(b): float(random.integers(0, 3)) for a, b in edges if a == layer},
        }

    nodes = [{"id": n, "TMPCs": {t: [variant(n), variant(n)] for t in ("1", "2")}} for n in range(count)]
    listed = [{"sourceId": a, "destId": b, "communicationCost": float(random.integers(0, 3))} for a, b in edges]
    return {"nodes": nodes, "edges": listed}


def all_stages(nodes: frozenset[int], edges: list[tuple[int, int]]) -> Iterator[list[frozenset[int]]]:
    """Yield all ways to cut nodes into ordered stages in which no edge goes back."""
    if not nodes:
        yield []
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(sorted(nodes), size):
            first = frozenset(chosen)
            if all(a in first or a not in nodes for a, b in edges if b in first):
                for rest in all_stages(nodes - first, edges):
                    yield [first, *rest]


def price_piper(
    table: Table, memory: float, stages: list[frozenset[int]], degrees: tuple[tuple[int, int], ...]
) -> float:
    """Return the least cost over all variants of stages with given degrees."""
    layers = {node["id"]: node["TMPCs"] for node in table["nodes"]}
    worst = 0.0
    for position, (stage, (d, t)) in enumerate(zip(stages, degrees, strict=True)):
        copies = math.ceil(sum(each for each, _ in degrees[position:]) / d)
        best = math.inf
        for picked in product(*(layers[layer][str(t)] for layer in sorted(stage))):
            variants = dict(zip(sorted(stage), picked, strict=True))
            if sum(v["memoryUsageA"] * copies + v["memoryUsageB"] for v in picked) > memory:
                continue
            bytes_moved = 0.0
            for edge in table["edges"]:
                a, b, cost = edge["sourceId"], edge["destId"], edge["communicationCost"]
                if b in stage and a not in stage:
                    bytes_moved += 2 * (cost + variants[b]["syncTimeFw"][str(a)])
                if a in stage and b not in stage:
                    bytes_moved += 2 * (cost + variants[a]["syncTimeBw"][str(b)])
            shared = sum(4 * (d - 1) * v["parameterSize"] / (d * BATCH) for v in picked)
            load = sum(v["timePerSample"] for v in picked) / d + bytes_moved / d / BANDWIDTH + shared / BANDWIDTH
            best = min(best, load)
        worst = max(worst, best)
    return worst


@pytest.mark.parametrize("seed", seeds(6))
def test_the_least_load_is_that_of_trying_every_plan(seed: int) -> None:
    random = np.random.default_rng(seed)
    table, memory = random_piper(random, count=4), float(random.integers(10, 30))
    edges = [(edge["sourceId"], edge["destId"]) for edge in table["edges"]]
    best = math.inf
    for stages in all_stages(frozenset(range(4)), edges):
        for degrees in product([(1, 1), (1, 2), (2, 1)], repeat=len(stages)):
            if sum(d * t for d, t in degrees) <= DEVICES:
                best = min(best, price_piper(table, memory, stages, degrees))
    if best < math.inf:
        assert Piper(table, DEVICES, BANDWIDTH, BATCH, memory).solve() == pytest.approx(best)


@pytest.mark.parametrize("seed", seeds(10))
def test_the_best_placement_is_that_of_trying_every_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, edges = 5, random_edges(random, 5)
    fields = ("fpgaLatency", "cpuLatency", "size")
    nodes = [
        {"id": n, "colorClass": n, **{field: float(random.integers(1, 9)) for field in fields}} for n in range(count)
    ]
    nodes = [{**node, "supportedOnFpga": 1, "isBackwardNode": 0} for node in nodes]
    costs = [float(random.integers(0, 4)) for _ in range(count)]
    listed = [{"sourceId": a, "destId": b, "cost": costs[a]} for a, b in edges]
    table = {"nodes": nodes, "edges": listed, "maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 20.0}
    best = math.inf
    for stages in all_stages(frozenset(range(count)), edges):
        for kinds in product("ac", repeat=len(stages)):
            if kinds.count("a") <= 2 and kinds.count("c") <= 1:
                loads = [price_group(table, stage, kind, costs) for stage, kind in zip(stages, kinds, strict=True)]
                best = min(best, max(loads))
    assert Placement(table).solve() == pytest.approx(best)


def price_group(table: Table, stage: frozenset[int], kind: str, costs: list[float]) -> float:
    nodes = [node for node in table["nodes"] if node["id"] in stage]
    if kind == "c":
        return float(sum(node["cpuLatency"] for node in nodes))
    if sum(node["size"] for node in nodes) > table["maxSizePerFPGA"]:
        return math.inf
    pairs = [(edge["sourceId"], edge["destId"]) for edge in table["edges"]]
    crossing = {a for a, b in pairs if (a in stage) != (b in stage)}
    return float(sum(node["fpgaLatency"] for node in nodes) + sum(costs[a] for a in crossing))


def test_down_sets_are_closed_and_counted() -> None:
    assert len(list_down_sets([0, 1, 2], [(0, 1), (1, 2)])) == 4
    assert len(list_down_sets([0, 1, 2], [])) == 8
    with pytest.raises(TooManyDownSets):
        list_down_sets(list(range(12)), [])
