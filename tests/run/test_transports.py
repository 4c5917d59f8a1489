"""Every collective on every transport: logical devices of one process, and one process per device over MPI."""

from __future__ import annotations

import signal
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from planner.errors import RunFailed
from planner.ir.accounting import count_live_bytes, count_received_bytes
from planner.ir.collectives import Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Reduction, Sharding
from planner.run.executor import run_program
from planner.run.inputs import random_inputs
from planner.run.mpi import run_over_mpi
from planner.run.validate import validate
from tests.testing.graphs import Sketch, small_transformer
from tests.testing.mpi_ranks import FatalSeed, find_ranks
from tests.testing.processes import gone
from tests.testing.sample_programs import question_of, random_program

MPI = pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed (extra mpi)")
BACKENDS = ["numpy", pytest.param("mpi", marks=MPI), pytest.param("cupy", marks=pytest.mark.gpu)]
MESH = Mesh.parse("2x2")


def partial(reduction: Reduction, *axes: int) -> Sharding:
    return Sharding(((), ()), axes, reduction)


# shape, from, move; sizes are uneven where that is exact
MOVES: list[tuple[tuple[int, int], Sharding, Collective]] = [
    ((7, 3), Sharding(((0, 1), ())), Collective(Kind.ALL_GATHER, (0, 1), 0)),
    ((8, 5), Sharding(((1, 0), ())), Collective(Kind.ALL_GATHER, (0,), 0)),
    ((5, 6), Sharding(((), ())), Collective(Kind.ALL_SLICE, (1, 0), 0)),
    ((6, 5), Sharding(((0,), ())), Collective(Kind.ALL_SLICE, (1,), 1)),
    ((7, 5), Sharding(((1,), ())), Collective(Kind.ALL_TO_ALL, (1,), 1, 0)),
    ((4, 9), Sharding(((), (1, 0))), Collective(Kind.ALL_TO_ALL, (1, 0), 0, 1)),
    ((3, 7), partial(Reduction.SUM, 0, 1), Collective(Kind.REDUCE_SCATTER, (1, 0), 1)),
    ((5, 4), partial(Reduction.MAX, 1), Collective(Kind.REDUCE_SCATTER, (1,), 0)),
    *(((5, 3), partial(kind, 0, 1), Collective(Kind.ALL_REDUCE, (0, 1))) for kind in Reduction),
    *(
        ((6, 7), source, Collective.exchange(source, target))
        for source, target in (
            (Sharding(((0,), ())), Sharding(((1,), (0,)))),
            (Sharding(((0, 1), ())), Sharding(((1, 0), ()))),
            (partial(Reduction.SUM, 0), Sharding(((1,), ()))),
            (Sharding(((0,), ()), halo_sizes=(1, 1)), Sharding(((1,), ()))),
            (Sharding(((1,), ())), partial(Reduction.PRODUCT, 0)),
        )
    ),
]


def every_move() -> Program:
    """Inputs, each moved once and returned."""
    s = Sketch()
    kinds = ["f32" if held.reduction.dtype_error("f32") is None else "i32" for _, held, _ in MOVES]
    names = [s.input(*shape, dtype=kind) for (shape, _, _), kind in zip(MOVES, kinds, strict=True)]
    pairs = list(zip(names, MOVES, strict=True))
    moves = tuple(Reshard(move, name, f"{name}.moved") for name, (_, _, move) in pairs)
    arguments = tuple((name, held) for name, (_, held, _) in pairs)
    return Program(s.graph(*names), MESH, arguments, moves, tuple(move.result for move in moves))


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_collective_leaves_the_tensor_and_moves_what_is_predicted(backend: str) -> None:
    assert {move.kind for _, _, move in MOVES} == set(Kind)
    found = validate(every_move(), backend, shrinking="none")
    assert (found.verdict, found.difference) == ("equal", None)


@MPI
def test_ranks_have_the_results_bytes_and_peaks_of_logical_devices() -> None:
    question = question_of(small_transformer(Mesh.parse("3x2"), batch=7), "3x2")
    program = random_program(question, 2)
    arrays = random_inputs(program.graph, np, "f64", seed=5)
    alone, spread = run_program(program, arrays, np, precision="f64"), run_over_mpi(program, "f64", 5)
    for one, other in zip(alone.outputs, spread.outputs, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs, "the same bits: terms are added in one order")
    assert (spread.received == count_received_bytes(program)).all()
    assert (spread.peak == count_live_bytes(program).max(axis=0)).all()
    assert (alone.received == spread.received).all()


@MPI
def test_a_rank_that_fails_ends_the_run_with_its_message() -> None:
    s = Sketch()
    graph = s.graph(s.op("relu", [s.input(8, 8)], (8, 8)))
    program = random_program(question_of(graph, "2"), 0)
    broken = tuple(
        replace(done, op=replace(done.op, op="no_such_op")) if isinstance(done, OpCall) else done
        for done in program.instructions
    )
    with pytest.raises(
        RunFailed, match=r"a run over MPI failed \(got rank \d: node 'n0': op has a rule but no array function"
    ):
        run_over_mpi(replace(program, instructions=broken), "f64", 0)


@MPI
def test_ranks_that_hang_are_ended_within_the_limit() -> None:
    with pytest.raises(RunFailed, match=r"mpiexec -n 4: a run over MPI took too long .*within 0.01 s"):
        run_over_mpi(every_move(), "f64", 0, limit_s=0.01)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that runs have their files in, so that the command line of each of their processes names it."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("no /proc to find ranks in")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@MPI
def test_what_is_raised_while_the_ranks_run_ends_them(folder: Path) -> None:
    def on_wait() -> None:
        if len(find_ranks(folder)) > MESH.devices:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        run_over_mpi(every_move(), "f64", FatalSeed(signal.SIGSTOP), on_wait=on_wait)
    assert gone(find_ranks(folder))


# what befalls a rank, limit, what is said
FATES = [
    (signal.SIGKILL, 60.0, r"failed \(got YOUR APPLICATION .*signal 9"),
    (signal.SIGSTOP, 2.0, r"took too long \(got no output"),
]


@MPI
@pytest.mark.parametrize(("fate", "limit_s", "words"), FATES)
def test_a_rank_that_dies_or_stands_still_ends_the_run(
    fate: signal.Signals, limit_s: float, words: str, folder: Path
) -> None:
    with pytest.raises(RunFailed, match=rf"mpiexec -n 4: a run over MPI {words}"):
        run_over_mpi(every_move(), "f64", FatalSeed(fate), limit_s=limit_s)
    assert gone(find_ranks(folder))
