"""Times the step of a module under `planner.torch.parallelize` in FSDP beside torch's `fully_shard` on every layer.

A feed-forward model, four processes over gloo, steps of both in turns; the median step, of the slowest process.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

from benchmarks.record import write
from planner.planning.plan_types import Request
from tests.testing.gloo import join_gloo, run_ranks

RANKS, GAP = 4, 0.05
WIDTH, LAYERS, BATCH, WARM, STEPS, LIMIT_S = 512, 6, 64, 3, 20, 600.0


def measure_overhead() -> dict[str, Any]:
    """Return the median seconds of a step of both, and their ratio; the slowest process counts."""
    with tempfile.TemporaryDirectory() as folder:
        told = run_ranks("benchmarks.torch_overhead", RANKS, folder, limit_s=LIMIT_S)
        planned, by_hand = (max(each) for each in zip(*told, strict=True))
    model = f"{LAYERS} linear layers of {WIDTH}, batch {BATCH}, SGD"
    return {"model": model, "parallelize_s": planned, "fully_shard_s": by_hand, "ratio": round(planned / by_hand, 2)}


def run_rank(rank: int, folder: str) -> list[float]:
    with join_gloo(folder, rank, RANKS):
        return _time_both(rank)


def _time_both(rank: int) -> list[float]:
    """Return the median step under `parallelize` and under `fully_shard`, measured in turns of one step."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import planner.torch

    class Stack(nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                *(nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()) for _ in range(LAYERS))
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x).square().mean()

    torch.manual_seed(0)
    x = torch.randn(BATCH, WIDTH)
    request = Request(layout="fsdp", gap=GAP, deterministic=True)
    planned = planner.torch.parallelize(Stack(), (x,), f"dp={RANKS}", train="sgd", request=request)
    by_hand, mesh = Stack(), init_device_mesh("cpu", (RANKS,))
    for layer in by_hand.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(by_hand, mesh=mesh)
    ways: list[tuple[Any, Any]] = [(planned, x), (by_hand, x.chunk(RANKS)[rank])]
    optimizers = [torch.optim.SGD(module.parameters(), lr=1e-3) for module, _ in ways]
    seconds: list[list[float]] = [[], []]
    for _ in range(WARM + STEPS):
        for (module, given), optimizer, taken in zip(ways, optimizers, seconds, strict=True):
            dist.barrier()
            start = time.perf_counter()
            optimizer.zero_grad()
            module(given).backward()
            optimizer.step()
            taken.append(time.perf_counter() - start)
    return [round(statistics.median(taken[WARM:]), 5) for taken in seconds]


def table(result: dict[str, Any]) -> str:
    """Return both times and their ratio as Markdown."""
    planned, by_hand = (1e3 * result[name] for name in ("parallelize_s", "fully_shard_s"))
    return (
        "| model | `parallelize` ms a step | `fully_shard` ms a step | ratio |\n|---|---|---|---|\n"
        f"| {result['model']} | {planned:.1f} | {by_hand:.1f} | {result['ratio']} |\n"
    )


def main() -> None:
    """Measure and write results/torch_overhead.json."""
    write("torch_overhead", measure_overhead())


if __name__ == "__main__":
    main()
