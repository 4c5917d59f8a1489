"""A logical device's memory on a GPU: a buffer per value, and a pool whose peak is that of its live values."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.run.device_memory import ALIGNMENT
from planner.run.executor import Executor
from planner.run.inputs import random_inputs
from planner.run.transport import LocalTransport
from planner.run.validate import execute
from tests.testing.graphs import small_transformer
from tests.testing.sample_programs import question_of, random_program

# Packages that a machine which only runs plans need not have; None in sys.modules is an import that fails.
ABSENT = ("ortools", "numba", "pydantic", "typer", "rich", "fastapi", "uvicorn", "sqlalchemy", "torch", "jax", "mpi4py")
MODULES = ("validate", "executor", "mpi", "nccl", "device_memory", "first_difference", "shrink", "spmd_executor")


class NumpyAsCupy:
    """Numpy with the streams, events and pools that cupy has: what is asked of them is done at once."""

    def __init__(self) -> None:
        event = SimpleNamespace(record=lambda stream: None)
        pool = SimpleNamespace(malloc=None, used_bytes=lambda: 0)
        stream = type("Stream", (nullcontext,), {"synchronize": lambda self: None})
        self.cuda = SimpleNamespace(
            Event=lambda: event,
            MemoryPool=lambda: pool,
            Stream=lambda non_blocking: stream(),
            using_allocator=nullcontext,
            get_elapsed_time=lambda start, stop: 2.0,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def program() -> Program:
    return random_program(question_of(small_transformer(Mesh.parse("2x2"), batch=7), "2x2"), 4)


def test_no_two_values_of_a_device_share_memory_and_their_bytes_are_aligned() -> None:
    xp, found = NumpyAsCupy(), program()
    machine = Executor(found, random_inputs(found.graph, np, "f64", seed=0), xp, "f64", LocalTransport(4))
    most = [0] * 4
    for place, done in enumerate(found.instructions):
        machine.execute(place, done)
        for device, held in machine.held.items():
            arrays = list(held.values())
            most[device] = max(most[device], sum(-(-a.nbytes // ALIGNMENT) * ALIGNMENT for a in arrays))
            for name in done.results:
                assert not any(np.shares_memory(held[name], a) for key, a in held.items() if key != name), name
        machine.end_instruction(place, (*done.operands, *done.results))
    assert [home.measured_peak for home in machine.homes.values()] == [(0, each) for each in most]
    assert set(np.unique(machine.seconds())) == {0.0, 0.002}, "ops take time, collectives are not timed"


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_the_peak_of_a_pool_is_that_of_its_live_values(precision: str) -> None:
    verdict, done = execute(program(), "cupy", precision)
    assert verdict.verdict == "equal"
    for pool in done.measured_peaks:
        assert pool is not None
        assert pool[0] == pool[1]


def test_programs_run_where_neither_solver_nor_service_is_installed() -> None:
    code = f"import sys\nsys.modules |= dict.fromkeys({ABSENT!r})\n"
    code += "".join(f"import planner.run.{name}\n" for name in MODULES)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_plan_files_are_read_and_run_there_with_pydantic_alone() -> None:
    absent = tuple(name for name in ABSENT if name != "pydantic")
    code = f"import sys\nsys.modules |= dict.fromkeys({absent!r})\nimport planner.usecases.validate_gpu\n"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
