"""Runs training steps under JAX on eight host devices.

JAX reads the number of devices when it is loaded, so it runs in a process of its own, which reads a pickle of jobs and
writes a pickle of their losses.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.testing.jax_devices import host_environment


class Job(NamedTuple):
    """A module of `shard-map`, specs of its arguments and results where XLA is to partition it, and what it is run on:
    arguments in order, which results are the next step's arguments, and the number of steps. The first result is the
    loss."""

    text: str
    specs: dict[str, Any] | None
    arguments: list[Any]
    feeds: dict[int, int]
    steps: int


def under_jax(jobs: Sequence[Job]) -> list[list[float]]:
    """Return the losses of every job, run in a process whose JAX has eight devices."""
    command = [sys.executable, "-m", "benchmarks.jax_steps"]
    sent, env = pickle.dumps([tuple(job) for job in jobs]), host_environment(8)
    run = subprocess.run(command, input=sent, capture_output=True, timeout=600, check=False, env=env)
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    losses: list[list[float]] = pickle.loads(run.stdout)
    return losses


def _trained(job: Job) -> list[float]:
    import jax
    from jax.sharding import Mesh as Devices

    module: dict[str, Any] = {}
    exec(compile(job.text, "exported", "exec"), module)
    axes = job.specs["mesh"] if job.specs else module["AXES"]
    mesh = Devices(np.array(jax.devices()[: int(np.prod([*axes.values()]))]).reshape([*axes.values()]), (*axes,))
    if job.specs is None:
        function = jax.jit(module["mapped"](mesh))
    else:
        reads, leaves = (_shardings(job.specs[key], mesh) for key in ("arguments", "results"))
        function = jax.jit(module["program"], in_shardings=reads, out_shardings=leaves)
    arguments, losses = list(job.arguments), []
    for _ in range(job.steps):
        results = function(*arguments)
        losses.append(float(results[0]))
        for number, place in job.feeds.items():
            arguments[place] = results[number]
    return losses


def _shardings(entries: Sequence[dict[str, Any]], mesh: Any) -> tuple[Any, ...]:
    from jax.sharding import NamedSharding, PartitionSpec

    layouts = ([tuple(dim) if isinstance(dim, list) else dim for dim in entry["layout"]] for entry in entries)
    return tuple(NamedSharding(mesh, PartitionSpec(*layout)) for layout in layouts)


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps([_trained(Job(*job)) for job in pickle.loads(sys.stdin.buffer.read())]))
