"""Halos and offsets in programs: what elementwise ops keep, what exchanges supply, and that programs run right."""

from __future__ import annotations

import re

import numpy as np
import pytest

from planner.errors import InvalidSharding
from planner.export.mlir import Dialect, print_program, print_spmd
from planner.frontends.mlir import read_spmd
from planner.ir.graph import OUTPUTS, Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Sharding
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from planner.run.spmd_executor import run_spmd
from planner.run.validate import validate
from tests.testing.annotated_notation import local, materialized, written
from tests.testing.graphs import Sketch
from tests.testing.lowered_programs import check_lowered

ROWS = Sharding(((0,), ()))
HALO = Sharding(((0,), ()), halo_sizes=(2, 1))
WIDE = Sharding(((0,), ()), halo_sizes=(2, 2))
BOTH = Sharding(((0,), (1,)), halo_sizes=(1, 2, 3, 4))
OFFSETS = Sharding(((), (0,)), sharded_dims_offsets=((0, 2, 5, 9, 14),))


def chain(rows: int, columns: int, *layouts: Sharding) -> Graph:
    """n1 = exp(tanh(i0)); layouts of i0, n0, n1."""
    sketch = Sketch()
    made = sketch.op("tanh", [sketch.input(rows, columns)], (rows, columns))
    last = sketch.op("exp", [made], (rows, columns))
    names = ("i0", "n0", "n1")
    annotations = tuple(Annotation(name, layout, True) for name, layout in zip(names, layouts, strict=True))
    return sketch.graph(last, annotations=annotations)


def run(graph: Graph, mesh: Mesh) -> Program:
    """The program, run on every device against the whole."""
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert validate(program, shrinking="none").verdict == "equal"
    return program


def test_elementwise_ops_keep_halos_without_communication() -> None:
    # conformance 27; 3.4: 8x16 over four devices, halo [2,1]: shards of five rows
    program = run(chain(8, 16, HALO, HALO, HALO), Mesh.parse("4"))
    assert written(program) == ["tanh", "exp"]
    assert local(program, "n1") == (5, 16)


# mesh, size, source, target, shard with halo
# conformance 55; 3.4: 1200x1200
BROUGHT = [
    ("4", 1200, ROWS, WIDE, (304, 1200)),
    ("4x4", 1200, Sharding(((0,), (1,))), BOTH, (303, 307)),
    ("4", 14, Sharding(((), (0,))), OFFSETS, (14, 5)),
]


@pytest.mark.parametrize(("mesh", "size", "source", "target", "shard"), BROUGHT)
def test_one_exchange_brings_halos_and_offsets(
    mesh: str, size: int, source: Sharding, target: Sharding, shard: tuple[int, ...]
) -> None:
    program = run(chain(size, size, source, target, target), Mesh.parse(mesh))
    assert [line.split()[0] for line in written(program)] == ["exchange", "tanh", "exp"]
    assert local(program, "n1") == shard


# layouts of i0, n0, n1
CHANGES = [
    (HALO, WIDE, ROWS),
    (WIDE, HALO, Sharding(((), (0,)))),
    (Sharding(((), ())), HALO, OFFSETS),
    (OFFSETS, Sharding(((), (0,)), sharded_dims_offsets=((0, 0, 7, 14, 14),)), HALO),
    (Sharding(((), ()), (0,)), HALO, ROWS),
]


@pytest.mark.parametrize("layouts", CHANGES, ids=str)
def test_programs_that_change_halos_and_offsets_run_right(layouts: tuple[Sharding, ...]) -> None:
    run(chain(8, 14, *layouts), Mesh.parse("4"))


def test_a_shard_too_small_for_its_halo_is_refused() -> None:
    with pytest.raises(InvalidSharding, match="halo of dim 0"):
        run(chain(8, 14, ROWS, Sharding(((0,), ()), halo_sizes=(3, 0)), ROWS), Mesh.parse("4"))


def test_a_reader_may_want_halos_of_its_own() -> None:
    sketch = Sketch()
    made = sketch.op("tanh", [sketch.input(8, 14)], (8, 14))
    annotations = (Annotation("n0", ROWS, True), Annotation("n0", HALO, True, OUTPUTS))
    program = run(sketch.graph(made, annotations=annotations), Mesh.parse("4"))
    assert [line.split()[0] for line in written(program)] == ["tanh", "exchange"]


# layouts of i0, n0, n1; what stands in the text
PRINTED = [
    (ROWS, ROWS, WIDE, ["tanh", "update_halo [0, 0] to [2, 2]", "exp"]),  # exp runs on shards with halos
    (HALO, WIDE, ROWS, ["update_halo [2, 1] to [2, 2]", "tanh", "update_halo [2, 2] to [0, 0]", "exp"]),
]


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(("first", "second", "last", "lines"), PRINTED)
def test_a_change_of_halos_is_an_update_halo_of_the_dialect(
    first: Sharding, second: Sharding, last: Sharding, lines: list[str], dialect: Dialect
) -> None:  # conformance 55
    text = print_program(run(chain(8, 16, first, second, last), Mesh.parse("4")), dialect)
    found = re.findall(
        r" = \w+\.(\w+) .*?(?:source_halo_sizes = (.*\]) destination_halo_sizes = (.*\]))?(?: :|$)", text
    )
    assert [f"{op} {old} to {new}" if old else op for op, old, new in found] == lines
    assert print_spmd(read_spmd(text), dialect, "test").replace("@mesh", "@m") == text.replace("@mesh", "@m")


@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_printed_update_halo_brings_the_neighbours_rows(dialect: Dialect) -> None:  # conformance 55
    sketch = Sketch()
    graph = sketch.graph(
        sketch.input(8, 16), annotations=(Annotation("i0", ROWS), Annotation("i0", HALO, True, OUTPUTS))
    )
    program = read_spmd(print_program(run(graph, Mesh.parse("4")), dialect))
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    (held,) = run_spmd(program, {"i0": [x[2 * device : 2 * device + 2] for device in range(4)]}).outputs
    for device, part in enumerate(held):
        for row, number in enumerate(range(2 * device - 2, 2 * device + 3)):
            if 0 <= number < 8:
                assert (part.array[row] == x[number]).all()
                assert not part.mask(np)[row].any()


# layouts of i0, n0, n1; the collectives in the text
LOWERED = [
    ((Sharding(((), (0,))), WIDE, WIDE), ["all_to_all", "update_halo"]),
    ((HALO, ROWS, OFFSETS), ["update_halo", "all_gather", "all_slice"]),
    ((OFFSETS, OFFSETS, Sharding(((), (0,)))), ["all_gather", "all_slice"]),
    ((ROWS, Sharding(((0,), ()), halo_sizes=(1, 0)), Sharding(((), ()))), ["update_halo", "update_halo", "all_gather"]),
]


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(("layouts", "calls"), LOWERED, ids=str)
def test_an_exchange_is_written_as_collectives(
    layouts: tuple[Sharding, ...], calls: list[str], dialect: Dialect
) -> None:
    program = run(chain(8, 14, *layouts), Mesh.parse("4"))
    text = print_program(program, dialect)
    assert re.findall(r" = (?:mesh|shard)\.(\w+)", text) == calls
    arrays = random_inputs(program.graph, np, "f64", seed=0)
    check_lowered(program, arrays, run_whole(program.graph, arrays, np, precision="f64"), 0)
