"""The output that nccl-tests would print on a network with exactly the given latency and bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from planner.choose.hardware.nccl_tests import COLLECTIVE_KINDS, CollectiveRun
from planner.choose.hardware.network import Link

SIZES = tuple(1 << power for power in range(12, 31, 3))


def printed(name: str, links: Sequence[Link], each: int, hosts: int = 1, launcher: str = "", factor: float = 1) -> str:
    """Return the output of a run with `each` ranks per host; `links` are those inside a host and between hosts."""
    ranks = each * hosts
    busbw = factor * (ranks - 1) / ranks * (2 if name == "all_reduce" else 1)
    lines = [f"# Collective test starting: {name}_perf", "# nThread 1 nGpus 1 minBytes 8", "#", "# Using devices"]
    lines += [
        f"#  Rank {r:2d} Group  0 Pid {4000 + r:6d} on node-{r // each} device {r % each:2d} [0000:06:00] NVIDIA H100"
        for r in range(ranks)
    ]
    lines += ["#", "#       size         count      type   redop    root     time   algbw   busbw #wrong"]
    redop = "none" if name in ("all_gather", "alltoall") else "sum"
    for size in SIZES:
        timing = CollectiveRun(COLLECTIVE_KINDS[name], ranks, hosts, ((size, 1.0),)).timings()[0]
        time = timing.predicted_s(links) * 1e6
        half = f"{time:10.3f} {size / time / 1e3:7.2f} {size / time / 1e3 * busbw:7.2f}      0"
        lines.append(f"{size:12d} {size // 4:12d}     float {redop:>7} {-1:7d} {half} {half}")
    lines += [
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 1",
        f"# Collective test concluded: {name}_perf",
    ]
    return "".join(f"{launcher}{line}\n" for line in lines)
