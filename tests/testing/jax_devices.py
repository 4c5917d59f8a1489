"""Runs modules of planner.export.shard_map under JAX on eight host devices, in a process of its own.

Read from standard input: a pickle of (text, arguments) pairs. Written to standard output: a pickle of (results, bytes
that cross between devices in each of the compiled program's collectives) pairs.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

Job = tuple[str, Sequence[Any]]
Done = tuple[list[Any], list[tuple[str, int]]]
WIDTH = {"f64": 8, "s64": 8, "f32": 4, "s32": 4, "bf16": 2, "f16": 2, "pred": 1, "s8": 1, "u8": 1}
KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
_COLLECTIVE = re.compile(rf"= (.*?) ({KINDS})(?:-start)?\((.*)")


def host_environment(devices: int) -> dict[str, str]:
    """Return the environment of a JAX process with host devices, which compiles as fast as it can: programs run once.

    Without optimization by LLVM, and without XLA's emitters of fusions, compiling takes 0.4 of the time.
    """
    quick = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    flags = f"--xla_force_host_platform_device_count={devices} {quick}"
    return {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def on_eight_devices(jobs: Sequence[Job]) -> list[Done]:
    """Run the jobs in a JAX process with eight host devices and return their results."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.testing.jax_devices"],
        input=pickle.dumps(list(jobs)),
        capture_output=True,
        timeout=300,
        check=False,
        env=host_environment(8),
    )
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    done: list[Done] = pickle.loads(run.stdout)
    return done


def received(hlo: str) -> list[tuple[str, int]]:
    """Return the kind of each collective and the bytes that all devices receive in it, by the ring formulas."""
    return [(found[2], _received(found)) for line in hlo.splitlines() if (found := _COLLECTIVE.search(line))]


def _received(found: re.Match[str]) -> int:
    made, kind, rest = found.groups()
    size = sum(_bytes(dtype, dims) for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", made))
    if kind == "collective-permute":
        pairs = re.findall(r"\{(\d+),(\d+)\}", rest.split("source_target_pairs=")[1].split("}}")[0] + "}")
        return size * len([source for source, target in pairs if source != target])
    groups, members = grouping(rest)
    whole = {"all-gather": 1, "all-reduce": 2, "reduce-scatter": members, "all-to-all": 1}[kind] * size
    return groups * whole * (members - 1)


def grouping(text: str) -> tuple[int, int]:
    """Return number and size of the groups in `{{0,1},{2,3}}`, or in `[2,2]<=[4]` and its transposes."""
    if found := re.search(r"replica_groups=\{(\{[\d,{}]*\})\}", text):
        groups = found[1].strip("{}").split("},{")
        return len(groups), len(groups[0].split(","))
    found = re.search(r"replica_groups=\[(\d+),(\d+)\]<=", text)
    assert found, text
    return int(found[1]), int(found[2])


def _bytes(dtype: str, dims: str) -> int:
    return WIDTH[dtype] * int(np.prod([int(n) for n in dims.split(",") if n], dtype=int))


def _run(text: str, arguments: Sequence[Any]) -> Done:
    import jax

    module: dict[str, Any] = {}
    exec(compile(text, "exported", "exec"), module)
    names, sizes = zip(*module["AXES"].items(), strict=True)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes), names)
    laid_out, whole = (module.get(name, lambda *arrays: arrays) for name in ("laid_out", "whole"))
    arrays = laid_out(*arguments)
    compiled = jax.jit(module.get("over_parts", module["mapped"])(mesh)).lower(*arrays).compile()
    return [np.asarray(array) for array in whole(*compiled(*arrays))], received(compiled.as_text())


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    jobs: list[Job] = pickle.loads(sys.stdin.buffer.read())
    sys.stdout.buffer.write(pickle.dumps([_run(*job) for job in jobs]))
