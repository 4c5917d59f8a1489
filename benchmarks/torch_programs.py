"""Runs plans' programs in PyTorch with four processes over gloo, and compares them with what was planned.

Rows of the op table: every case, in programs with two random options, on 2x2 (`export --format torch`). Results must be
those of the unsharded graph (1e-5 of the largest element, f32), and the bytes that all processes receive, as their
calls of torch's collectives say, those predicted.

Training: tiny models of eight families, five steps of `planner.torch.parallelize` under three plans each: FSDP, the
fastest, and the fastest in 0.7 of its memory, with recomputation. Losses must be those of the unsharded module, and
those after a checkpoint of torch.distributed.checkpoint the same bit for bit.

Overhead: the median step of a feed-forward model under `parallelize` in FSDP, beside the same model under torch's
`fully_shard` on every layer.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write
from planner.errors import InvalidSharding
from planner.ir.accounting import count_received_bytes
from planner.ir.program import Program
from planner.planning.plan_types import Request
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from tests.testing.op_cases import CASES
from tests.testing.sample_programs import alone, question_of, random_program
from tests.testing.torch_programs import run_programs

MESH, RANKS, OPTIONS, NEAR = "dp=2,tp=2", 4, 2, 1e-5
PROGRAMS = 75
"""Programs that one batch of processes runs."""
SHARE, GAP = 0.7, 0.05
WIDTH, LAYERS, BATCH, WARM, STEPS, LIMIT_S = 512, 6, 64, 3, 20, 600.0


def measure_rows() -> dict[str, Any]:
    """Return how many programs of ops are equal in numbers and bytes, and which are not."""
    from planner.export.torch_program import print_torch

    listed: list[tuple[str, Program, str]] = []
    refused = []
    for case in CASES:
        for seed in range(OPTIONS):
            program = random_program(question_of(alone(case), "2x2"), seed)
            try:
                listed.append((case.op, program, print_torch(program)))
            except InvalidSharding as error:
                refused.append(str(error))
    unequal = [op for batch in _batches(listed) for op in _list_unequal(batch)]
    ops = len({case.op for case in CASES})
    return {"ops": ops, "programs": len(listed), "unequal": sorted(unequal), "refused": sorted(refused)}


def _batches(listed: Sequence[tuple[str, Program, str]]) -> Iterator[Sequence[tuple[str, Program, str]]]:
    return (listed[start : start + PROGRAMS] for start in range(0, len(listed), PROGRAMS))


def _list_unequal(listed: Sequence[tuple[str, Program, str]]) -> list[str]:
    """Run programs in one batch of processes, and return the ops of those whose numbers or bytes are others."""
    inputs = [random_inputs(program.graph, np, "declared", seed=0) for _, program, _ in listed]
    jobs = [
        (text, [arrays[name] for name, _ in program.arguments])
        for (_, program, text), arrays in zip(listed, inputs, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        results, received = run_programs(Path(folder), jobs, RANKS)
    cases = zip(listed, inputs, results, received, strict=True)
    return [
        op
        for (op, program, _), arrays, found, counted in cases
        if not _is_equal(program, arrays, found) or round(counted) != count_received_bytes(program).sum()
    ]


def _is_equal(program: Program, arrays: dict[str, Any], found: list[Any]) -> bool:
    with np.errstate(all="ignore"):
        whole = run_whole(program.graph, arrays, np, precision="declared")
    for name, result in zip(program.graph.outputs, found, strict=True):
        most = np.abs(whole[name][np.isfinite(whole[name])]).max(initial=1e-30)
        if not np.allclose(result, whole[name], rtol=0, atol=NEAR * most, equal_nan=True):
            return False
    return True


def measure_training() -> Iterator[dict[str, Any]]:
    """Yield for every model and plan the largest relative error of a loss, and what else the processes have seen."""
    from tests.testing.torch_models import MODELS
    from tests.testing.torch_steps import Trained, Training, train_over_gloo

    for model in MODELS:
        limit = int(SHARE * _find_peak(model))
        requests = {
            "FSDP": Request(layout="fsdp", gap=GAP, deterministic=True),
            "fastest": Request(gap=GAP, deterministic=True),
            "tight": Request(limit, gap=GAP, recompute="auto", time_limit_s=60),
        }
        with tempfile.TemporaryDirectory() as folder:
            trainings = [Training(model, MESH, request) for request in requests.values()]
            answers = train_over_gloo(Path(folder), trainings)
        for name, ranks in zip(requests, answers, strict=True):
            row: dict[str, Any] = {"model": model, "plan": name}
            seen = [rank for rank in ranks if isinstance(rank, Trained)]
            if len(seen) < len(ranks):
                yield row | {"error": next(rank for rank in ranks if isinstance(rank, str))}
                continue
            errors = [
                abs(got - wanted) / abs(wanted)
                for rank in seen
                for got, wanted in zip(rank.losses, rank.unsharded, strict=True)
            ]
            yield row | {
                "losses": [seen[0].losses[0], seen[0].losses[-1]],
                "largest_error": max(errors),
                "resumed_bit_for_bit": all(rank.is_resumed for rank in seen),
                "held_share": round(max(rank.share for rank in seen), 3),
                "recomputed_ops": seen[0].recomputed,
            }


def _find_peak(model: str) -> int:
    import planner.torch
    from tests.testing.torch_models import seeded

    module, inputs = seeded(model, 1)
    request = Request(gap=GAP, deterministic=True)
    planned = planner.torch.plan(module, inputs, MESH, train="adamw", master="none", request=request)
    assert planned.plan.analysis is not None
    return planned.plan.analysis.peak_bytes


def measure_overhead() -> dict[str, Any]:
    """Return the median seconds of a step of both, and their ratio; the slowest process counts."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.torch_programs", folder]
        ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(RANKS)]
        try:
            told = [json.loads(rank.communicate(timeout=LIMIT_S)[0]) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    planned, by_hand = (max(each) for each in zip(*told, strict=True))
    model = f"{LAYERS} linear layers of {WIDTH}, batch {BATCH}, SGD"
    return {"model": model, "parallelize_s": planned, "fully_shard_s": by_hand, "ratio": round(planned / by_hand, 2)}


def _time_both(folder: str, rank: int) -> list[float]:
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

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{Path(folder, 'store')}", rank=rank, world_size=RANKS)
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
    dist.destroy_process_group()
    return [round(statistics.median(taken[WARM:]), 5) for taken in seconds]


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown: training by model and plan, then ops and overhead."""
    rows, ops, overhead = result["training"], result["ops"], result["overhead"]
    lines = ["| model | plan | loss, first to fifth | largest error | resumed bit for bit | recomputed ops |"]
    lines.append("|---" * 6 + "|")
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['model']} | {row['plan']} | {row['error']} | | | |")
            continue
        first, last = row["losses"]
        resumed = "yes" if row["resumed_bit_for_bit"] else "no"
        lines.append(
            f"| {row['model']} | {row['plan']} | {first:.3f} to {last:.3f} | {row['largest_error']:.0e} "
            f"| {resumed} | {row['recomputed_ops']} |"
        )
    right = ops["programs"] - len(ops["unequal"])
    planned, by_hand = (1e3 * overhead[name] for name in ("parallelize_s", "fully_shard_s"))
    lines += [
        "",
        f"Of {ops['programs']} programs of {ops['ops']} ops, {right} have the unsharded numbers and the predicted "
        f"bytes; {len(ops['refused'])} are refused. {overhead['model']}: {planned:.1f} ms a step under `parallelize` "
        f"in FSDP, {by_hand:.1f} ms under `fully_shard` (ratio {overhead['ratio']}).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all of it and write results/torch_programs.json."""
    overhead = measure_overhead()
    print(overhead, flush=True)
    ops = measure_rows()
    print(ops, flush=True)
    training = []
    for row in measure_training():
        print(row, flush=True)
        training.append(row)
    parts = {"overhead": overhead, "ops": ops, "training": training}
    write("torch_programs", {"mesh": MESH, **parts})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.stdout.write(json.dumps(_time_both(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
