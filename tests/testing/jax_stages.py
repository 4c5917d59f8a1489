"""Exported stages run by JAX on host devices, in a process of its own.

Read from standard input: a pickle of (module's text, whole arguments by name, data of each step). Written to standard
output: a pickle of the whole results of every step.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tests.testing.jax_devices import host_environment

LIMIT_S = 300.0


def run_stages(
    text: str, arrays: Mapping[str, Any], *, steps: Sequence[Mapping[str, Any]], devices: int
) -> list[dict[str, Any]]:
    """Run steps of a module, each with data of its own, on host devices, and return their whole results."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.testing.jax_stages"],
        input=pickle.dumps((text, arrays, steps)),
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        env=host_environment(devices) | {"JAX_ENABLE_X64": "1"},
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    results: list[dict[str, Any]] = pickle.loads(done.stdout)
    return results


def _run() -> None:
    import numpy as np

    text, arrays, steps = pickle.loads(sys.stdin.buffer.read())
    module: dict[str, Any] = {}
    exec(compile(text, "<stages>", "exec"), module)
    held, found = module["local"](arrays), []
    for data in steps:
        held = [{**each, **{name: data[name] for name in each if name in data}} for each in held]
        results = module["program"](held)
        found.append({name: np.asarray(array) for name, array in module["whole"](results).items()})
        held = module["advance"](held, results)
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    _run()
