"""Measures resharding of published and random cases on all logical devices: bytes, planning times, buffers.

    python -m benchmarks.reshard [random cases]

The oracle makes the shards that programs run on (with random terms where a tensor is partial), and assembles the
result. Chains are programs of basis collectives only. Planning times are CPU seconds with empty caches.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from heapq import heappop, heappush
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.record import write
from benchmarks.reshard_cases import Case, pair, published, random_cases
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.ir import redistribution
from planner.ir.basis_moves import list_basis_moves
from planner.ir.collectives import Collective, count_received_elements
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.reshard import device_traffic, dim_splits, traffic
from planner.reshard.cheapest_path import Objective, ReshardPath, find_cheapest_path
from tests.testing.collective_chains import apply_chain
from tests.testing.layout_oracle import agree, shard_array, unshard_array

RANDOM = 5000
CHAINS = 300
GROWTH = ["8", "64", "512", "8x8", "16x32", "4x4x4", "8x8x8", "2x2x2x2", "2x2x4x4", "4x4x4x4", "4x4x4x8"]
HARDWARE = ("h100-sxm", "a100-sxm-cluster")


def ran_right(found: ReshardPath, case: Case) -> bool:
    """Return whether the program moves the oracle's shards to the target and receives the bytes that it predicts."""
    random = np.random.default_rng(0)
    shape = case.kind.shape
    whole = np.asarray(random.standard_normal(shape) if case.kind.dtype == "f32" else random.integers(0, 50, shape))
    held = shard_array(whole, case.source, case.mesh, random)
    got, at, received = apply_chain(held, found.moves, case.source, shape, case.mesh)
    right = at == case.target and agree(np.asarray(unshard_array(got, case.target, shape, case.mesh)), whole, 1e-9)
    return right and (received * case.kind.itemsize).tolist() == found.received.sum(axis=0).tolist()


def planned(case: Case, objective: Objective, hardware: str) -> tuple[ReshardPath, float]:
    """Plan a case with empty caches; return the program and the CPU seconds."""
    for remembered in (
        redistribution.plan_transfers,
        dim_splits.split_bounds,
        dim_splits.split_intervals,
        device_traffic._shared_lengths,
        traffic._count_pairs,
    ):
        remembered.cache_clear()
    mesh = Mesh(case.mesh.axes)
    start = time.process_time()
    found = find_cheapest_path(
        case.source, case.target, case.kind, model=CostModel(mesh, load_profile(hardware)), objective=objective
    )
    return found, time.process_time() - start


def run(cases: list[Case], chains: int) -> dict[str, Any]:
    """Return verdicts, bytes against the bound, buffers and planning times; the first `chains` also against chains."""
    verdicts: Counter[str] = Counter()
    seconds, peaks = ({objective: list[float]() for objective in Objective} for _ in range(2))
    ratios: list[float] = []
    above, dearer = [], []
    for number, case in enumerate(cases):
        ways = {objective: planned(case, objective, HARDWARE[0]) for objective in Objective}
        for objective, (found, taken) in ways.items():
            seconds[objective].append(taken)
            largest = max(found.buffer_bytes[0].max(), found.buffer_bytes[-1].max())
            peaks[objective].append(float(found.buffer_bytes.max() / largest))
            verdicts["right" if ran_right(found, case) else f"wrong: {case.name} {objective}"] += 1
        found, _ = ways[Objective.BYTES]
        total = int(found.received.sum())
        if not case.partial and total != found.min_bytes:
            above.append(case.name)
        if case.partial and found.bound_bytes:
            ratios.append(total / found.bound_bytes)
        if number < chains and (chain := chained(case, HARDWARE[0], Objective.BYTES)) and total > chain[0]:
            dearer.append(case.name)
    return {
        "cases": len(cases),
        "verdicts": dict(verdicts),
        "bytes_above_least_without_partial": above,
        "compared_with_chains": min(chains, len(cases)),
        "more_bytes_than_the_best_chain": dearer,
        "partial": {
            "cases": sum(case.partial for case in cases),
            "bytes_over_bound": spread(ratios),
            "at_the_bound": sum(ratio == 1 for ratio in ratios),
        },
        "buffer_over_larger_shard": {objective: spread(each) for objective, each in peaks.items()},
        "planning_ms": {objective: spread([1e3 * one for one in each]) for objective, each in seconds.items()},
    }


def spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    named = {
        "mean": mean(values),
        "median": median(values),
        "p90": ordered[int(0.9 * len(values))],
        "most": ordered[-1],
    }
    return {key: round(value, 4) for key, value in named.items()}


def chained(case: Case, hardware: str, objective: Objective) -> tuple[int, int] | None:
    """Return the cost of the best chain of basis collectives, by Dijkstra: (bytes, ps), or (0, ps) by time."""
    model = CostModel(case.mesh, load_profile(hardware))
    if any(each.halo_sizes or each.sharded_dims_offsets for each in (case.source, case.target)):
        return None
    done, waiting, number = set[Sharding](), [((0, 0), 0, case.source)], 0
    while waiting:
        cost, _, at = heappop(waiting)
        if at == case.target:
            return cost
        if at in done:
            continue
        done.add(at)
        for move, to in list_basis_moves(at, case.kind.shape, case.mesh):
            if to in done:
                continue
            size = 0
            if objective is Objective.BYTES:
                size = (
                    int(count_received_elements(move, at, case.kind.shape, mesh=case.mesh).sum()) * case.kind.itemsize
                )
            number += 1
            heappush(waiting, ((cost[0] + size, cost[1] + model.move_ps(move, at, case.kind)), number, to))
    return None


def compared(cases: list[Case], hardware: str, scale: int) -> dict[str, Any]:
    """Compare the programs' time with the best chain of basis collectives and the direct exchange, scaled up."""
    over_chain, over_exchange, over_best, slower, kinds = [], [], [], [], Counter[str]()
    for case in cases:
        kind = TensorType(tuple(size * scale for size in case.kind.shape), "bf16")
        if case.source == case.target or case.source.halo_sizes or case.target.halo_sizes:
            continue
        big = Case(case.name, case.source, case.target, kind, case.mesh)
        model = CostModel(case.mesh, load_profile(hardware))
        found = find_cheapest_path(big.source, big.target, kind, model=model)
        mine = sum(found.times_ps)
        direct = model.move_ps(Collective.exchange(big.source, big.target), big.source, kind)
        chain = chained(big, hardware, Objective.TIME)
        best = min(direct, chain[1] if chain else direct)
        kinds[_form(found)] += 1
        over_exchange.append(direct / mine)
        over_best.append(best / mine)
        if chain:
            over_chain.append(chain[1] / mine)
        if mine > best:
            slower.append(case.name)
    return {
        "hardware": hardware,
        "scale": scale,
        "slower_than_the_better": slower,
        "chosen": dict(kinds),
        "chain_over_ours": spread(over_chain),
        "exchange_over_ours": spread(over_exchange),
        "better_over_ours": spread(over_best),
    }


def _form(found: ReshardPath) -> str:
    if all(move.to is None for move in found.moves):
        return "chain"
    return "exchange" if len(found.moves) == 1 else "chain and exchange"


def growth() -> list[dict[str, Any]]:
    """Measure planning times by mesh, for random pairs of shardings of tensors with 2^20 to 2^24 elements."""
    rows = []
    for notation in GROWTH:
        mesh = Mesh.parse(notation)
        row: dict[str, Any] = {"mesh": notation, "devices": mesh.devices, "axes": len(mesh.axes)}
        for name, partial in (("plain", False), ("partial", True)):
            for objective in Objective:
                cases = (pair(mesh, partial, seed) for seed in range(10))
                taken = [1e3 * planned(case, objective, HARDWARE[0])[1] for case in cases]
                row[f"{name}_{objective}_ms"] = spread(taken)
        rows.append(row)
        print(row, file=sys.stderr)
    return rows


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    rows = [_row(name, result[name]) for name in ("published", "random")]
    head = "| cases | correct | bytes above the lower bound, without partial sums | planning, median | largest buffer |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def _row(name: str, found: dict[str, Any]) -> str:
    right, above = sum(found["verdicts"].values()), len(found["bytes_above_least_without_partial"])
    times = "by time {time[median]:.1f} ms, by bytes {bytes[median]:.1f} ms".format(**found["planning_ms"])
    buffers = "{time[mean]:.2f}x, {bytes[mean]:.2f}x".format(**found["buffer_over_larger_shard"])
    wrong = right - found["verdicts"].get("right", 0)
    return f"| {found['cases']:,} {name} | {right - wrong:,} of {right:,} programs | in {above} | {times} | {buffers} |"


def main() -> None:
    """Measure and write benchmarks/results/reshard.json."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else RANDOM
    fixed = published()
    result: dict[str, Any] = {"published": run(fixed, len(fixed))}
    print(json.dumps(result), file=sys.stderr)
    result["random"] = run(list(random_cases(count)), CHAINS)
    print(json.dumps(result["random"]), file=sys.stderr)
    result["time"] = [compared(fixed, hardware, scale) for hardware in HARDWARE for scale in (1, 64)]
    print(json.dumps(result["time"]), file=sys.stderr)
    result["growth"] = growth()
    write("reshard", result)


if __name__ == "__main__":
    main()
