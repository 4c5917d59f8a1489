"""Convolutions exchange halos (conformance 57, 61): annotated, completed, written as programs, and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidSharding
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.ir.sharding import Sharding
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_program
from planner.run.validate import validate
from tests.testing.annotated_notation import local, materialized, of, sharding, written
from tests.testing.graphs import Sketch


def line(size: int, taps: int, *annotations: Annotation, stride: int = 1, padding: int = 0) -> Graph:
    """n0 = convolution of i0, 1x1xsize, with i1, 1x1xtaps."""
    sketch = Sketch()
    operands = [sketch.input(1, 1, size), sketch.input(1, 1, taps)]
    made = (1, 1, (size + 2 * padding - taps) // stride + 1)
    attrs = {"stride": [stride], "padding": [padding]}
    return sketch.graph(sketch.op("convolution", operands, made, **attrs), annotations=annotations)


def test_a_device_with_one_element_takes_its_neighbours_elements() -> None:
    # conformance 57: mesh 3, 3 elements, mesh axis 0
    graph = line(3, 3, of("i0", "[[],[],[0]]"), padding=1)
    program = materialized(graph, Mesh.parse("3"), propagate(graph, Mesh.parse("3")))
    assert written(program) == ["exchange [0] to [[],[],[0]] halo_sizes=[1, 1] of i0", "convolution"]
    assert [local(program, name) for name in ("i0", "i0.1", "n0")] == [(1, 1, 1), (1, 1, 3), (1, 1, 1)]
    arrays = {"i0": np.array([[[1.0, 10, 100]]]), "i1": np.array([[[2.0, 3, 4]]])}
    done = run_program(program, arrays, np, precision="f64")
    assert done.received.tolist() == [[4, 8, 4], [0, 0, 0]]
    assert [float(held[0].item()) for held in done.outputs] == [43, 432, 320]


# size, taps, stride, padding, mesh, halo sizes (None: nothing moves), shards of the image and the result
HALOS = [
    (12, 3, 1, 1, "4", (1, 1), 5, 3),
    (12, 3, 1, 0, "4", (0, 2), 5, 3),
    (12, 3, 1, 2, "4", (1, 3), 7, 4),
    (12, 4, 4, 0, "3", None, 4, 1),
    (16, 3, 2, 1, "4", (1, 0), 5, 2),
    (17, 3, 2, 0, "2", (1, 0), 10, 4),
    (13, 3, 1, 1, "4", (1, 1), 6, 4),
    (12, 5, 1, 2, "4", (2, 2), 7, 3),
    (12, 1, 2, 0, "3", None, 4, 2),
    (15, 1, 2, 2, "4", (0, 3), 7, 3),
    (6, 1, 1, 6, "3", (2, 2), 6, 6),
]


@pytest.mark.parametrize(("size", "taps", "stride", "padding", "mesh", "halo", "image", "result"), HALOS)
def test_a_split_window_reads_as_wide_a_halo_as_the_neediest_device(
    size: int,
    taps: int,
    stride: int,
    padding: int,
    mesh: str,
    halo: tuple[int, int] | None,
    image: int,
    result: int,
) -> None:
    graph = line(size, taps, of("i0", "[[],[],[0]]"), stride=stride, padding=padding)
    program = materialized(graph, Mesh.parse(mesh), propagate(graph, Mesh.parse(mesh)))
    read = program.instructions[-1].operands[0]
    assert program.values[read].sharding.halo_sizes == (halo or ())
    assert (local(program, read)[2], local(program, "n0")[2]) == (image, result)
    assert validate(program, shrinking="none").verdict == "equal"


def test_an_image_split_in_both_dims_takes_corners_in_one_exchange() -> None:
    sketch, mesh = Sketch(), Mesh.parse("2x2")
    operands = [sketch.input(1, 2, 6, 8), sketch.input(4, 2, 3, 3)]
    made = sketch.op("convolution", operands, (1, 4, 6, 8), padding=[1, 1])
    graph = sketch.graph(made, annotations=(of("i0", "[[],[],[0],[1]]"),))
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert written(program) == ["exchange [0,1] to [[],[],[0],[1]] halo_sizes=[1, 1, 1, 1] of i0", "convolution"]
    assert int(validate(program, shrinking="none").predicted_bytes) == 2 * (3 + 4 + 1) * 4


def test_only_the_first_loop_of_a_window_is_split() -> None:
    # conformance 61: the map i + k; split i only, both is a failure
    graph, mesh = line(12, 3, padding=1), Mesh.parse("2x2")
    rule = graph.ops[0].rule
    names = [loop.name for loop in rule.loops]

    def split(**axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(axes.get(name, ()) for name in names)

    completed = propagate(graph, mesh, {"n0": split(y0=(0,))})
    assert completed.definition("n0") == sharding("[[],[],[0]]")
    with pytest.raises(InvalidSharding, match="loop r0 may not be split"):
        propagate(graph, mesh, {"n0": split(y0=(0,), r0=(1,))})


# halo sizes or offsets of the result, halo sizes of the image that the op reads, instructions
CUT = [
    ({"halo_sizes": (1, 1, 0, 0)}, (1, 1, 1, 1), ["exchange", "convolution"]),
    ({"halo_sizes": (0, 1, 1, 0)}, (0, 1, 1, 1), ["exchange", "convolution", "exchange"]),
    ({"sharded_dims_offsets": ((0, 1, 4), (0, 2, 4))}, (0, 0, 1, 1), ["exchange", "convolution", "exchange"]),
    ({"sharded_dims_offsets": ((0, 2, 4), (0, 3, 4))}, (0, 0, 1, 1), ["exchange", "convolution", "exchange"]),
]


@pytest.mark.parametrize(("cuts", "halo", "program_lines"), CUT)
def test_a_result_with_halos_or_offsets_leaves_the_window_its_halo(
    cuts: dict[str, Any], halo: tuple[int, ...], program_lines: list[str]
) -> None:
    sketch, mesh = Sketch(), Mesh.parse("2x2")
    made = sketch.op("convolution", [sketch.input(4, 1, 6), sketch.input(1, 1, 3)], (4, 1, 4), stride=[1], padding=[0])
    layout = Sharding(((0,), (), (1,)), **cuts)
    graph = sketch.graph(made, annotations=(Annotation("n0", layout),))
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert [line.split()[0] for line in written(program)] == program_lines
    convolution = next(done for done in program.instructions if isinstance(done, OpCall))
    assert program.values[convolution.operands[0]].sharding.halo_sizes == halo
    assert program.values[program.outputs[0]].sharding == layout
    assert validate(program, shrinking="none").verdict == "equal"
