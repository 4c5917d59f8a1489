"""Shrunk programs: the same instructions and layouts with small dims; even stays even, uneven stays uneven."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from planner import Request, pipeline
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Reshard
from planner.run.shrink import shrink
from planner.run.validate import validate
from tests.testing.convnets import stack, unet
from tests.testing.graphs import Sketch, small_transformer
from tests.testing.hardware import EAGER
from tests.testing.sample_programs import question_of, random_program

LARGE = {"d": 1024, "ff": 4096, "heads": 16, "batch": 32, "seq": 128}
UNEVEN = {"d": 768, "ff": 3000, "heads": 12, "batch": 9, "seq": 100}


@pytest.mark.parametrize("sizes", [LARGE, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("mesh", ["2x4", "3x2", "2x2x2"])
def test_a_shrunk_program_has_the_same_instructions_on_small_tensors(mesh: str, sizes: dict[str, int]) -> None:
    question = question_of(small_transformer(Mesh.parse(mesh), **sizes), mesh)
    for seed in range(3):
        program = random_program(question, seed)
        small = shrink(program)
        assert [told(done) for done in small.instructions] == [told(done) for done in program.instructions]
        assert {n: v.sharding for n, v in small.values.items()} == {n: v.sharding for n, v in program.values.items()}
        assert (small.arguments, small.outputs, small.mesh) == (program.arguments, program.outputs, program.mesh)
        elements = sum(math.prod(kind.shape) for kind in small.graph.types.values())
        assert elements < sum(math.prod(kind.shape) for kind in program.graph.types.values()) / 50


def told(done: OpCall | Reshard) -> tuple[object, ...]:
    return (done.op.id, done.option, *done.operands) if isinstance(done, OpCall) else (done.collective, done.operand)


@pytest.mark.parametrize("sizes", [LARGE, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("mesh", ["2x4", "3x2"])
def test_uneven_dims_stay_uneven_and_even_dims_even(mesh: str, sizes: dict[str, int]) -> None:
    question = question_of(small_transformer(Mesh.parse(mesh), **sizes), mesh)
    uneven = 0
    for seed in range(3):
        program = random_program(question, seed)
        small = shrink(program)
        for name, value in program.values.items():
            there = small.values[name].type.shape
            for size, shrunk, axes in zip(value.type.shape, there, value.sharding.split_axes, strict=True):
                parts = program.mesh.group_size(axes)
                assert bool(size % parts) == bool(shrunk % parts), f"{name}: {size} became {shrunk} over {parts}"
                uneven += bool(size % parts)
    assert bool(uneven) == (sizes is UNEVEN or mesh == "3x2")


def reshaped(source: tuple[int, ...], *targets: tuple[int, ...]) -> Graph:
    s = Sketch()
    made = s.op("exp", [s.input(*source)], source)
    for shape in targets:
        made = s.op("reshape", [made], shape)
    return s.graph(s.op("exp", [made], targets[-1]))


def cut_and_joined() -> Graph:
    s = Sketch()
    s.op("split", [s.input(96, 40)], (32, 40), (16, 40), (48, 40), dim=0)
    joined = s.op("concat", ["n0:2", "n0:1"], (64, 40), dim=0)
    part = s.op("slice", [joined], (24, 40), dim=0, start=8, stop=32)
    return s.graph(s.op("matmul", [part, s.input(40, 64)], (24, 64)), "n0")


def read_as_two_shapes() -> Graph:
    """The same value as 4 heads of 16 and as 8 of 8: the definitions disagree."""
    s = Sketch()
    made = s.op("exp", [s.input(32, 64)], (32, 64))
    return s.graph(s.op("reshape", [made], (32, 4, 16)), s.op("reshape", [made], (32, 8, 8)))


def read_as_two_shapes_and_one_of_them_again() -> Graph:
    """Two of three definitions agree: what they equate is looked through once more for what disagrees."""
    s = Sketch()
    made = s.op("exp", [s.input(32, 64)], (32, 64))
    return s.graph(*(s.op("reshape", [made], (32, heads, 64 // heads)) for heads in (4, 8, 4)))


def positions() -> Graph:
    """Positions that are computed and begin at 2, tokens that come from outside through a view."""
    s = Sketch("i64")
    ids = s.op("add", [s.op("arange", [], (64,))], (64,), scalar=2)
    tokens = s.op("reshape", [s.input(8, 8)], (64,))
    s.dtype = "f32"
    tables = [s.input(66, 32), s.input(50000, 32)]
    found = [s.op("embedding", [table, at], (64, 32)) for table, at in zip(tables, (ids, tokens), strict=True)]
    return s.graph(s.op("add", found, (64, 32)))


def square() -> Graph:
    s = Sketch()
    x = s.input(64, 64)
    return s.graph(s.op("matmul", [x, s.op("transpose", [x], (64, 64), permutation=[1, 0])], (64, 64)))


GRAPHS = {
    "heads apart and together": (reshaped((32, 64), (32, 4, 16), (128, 16), (32, 64)), True),
    "dims that share no loop": (reshaped((48, 60), (36, 80)), False),
    "dims that share one": (reshaped((64, 48, 60), (64, 36, 80)), True),
    "cut and joined": (cut_and_joined(), True),
    "one value as two shapes": (read_as_two_shapes(), True),
    "one value as two shapes, one of them again": (read_as_two_shapes_and_one_of_them_again(), True),
    "positions": (positions(), True),
    "a product with itself": (square(), True),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_shrunk_programs_run(name: str) -> None:
    graph, shrinks = GRAPHS[name]
    for mesh in ("2x2", "3x2", "4"):
        question = question_of(graph, mesh)
        for seed in range(6):
            program = random_program(question, seed)
            found = validate(program, seed=seed)
            assert found.verdict == "equal"
            if shrinks:
                small = shrink(program).graph.types
                assert sum(math.prod(kind.shape) for kind in small.values()) < sum(
                    math.prod(kind.shape) for kind in graph.types.values()
                )


def test_repeated_and_kept_dims_shrink_and_regrouped_dims_stay() -> None:
    s = Sketch()
    repeated = s.op("expand", [s.input(64)], (512, 64))
    cut = s.op("reshape", [repeated], (512, 4, 16))
    anew = s.op("reshape", [s.input(512, 9, 8)], (512, 6, 12))
    program = random_program(question_of(s.graph(cut, anew), "1"), 0)
    types = shrink(program).graph.types
    assert max(types[repeated].shape) < 64
    assert types[anew].shape[0] < 512
    assert types[anew].shape[1:] == (6, 12)


def test_a_program_that_is_small_already_stays_as_it_is() -> None:
    s = Sketch()
    graph = s.graph(s.op("exp", [s.input(2, 2)], (2, 2)))
    program = random_program(question_of(graph, "2"), 0)
    assert validate(program).verdict == "equal"
    assert {kind.shape for kind in shrink(program).graph.types.values()} == {(2, 2)}


def test_a_table_of_computed_positions_keeps_its_rows_and_a_vocabulary_does_not() -> None:
    program = random_program(question_of(positions(), "2x2"), 0)
    small = shrink(program).graph.types
    assert small["i1"].shape[0] == 66
    assert small["i2"].shape[0] < 100


# the plan on so many devices, how many times fewer elements: a U-Net, and images whose sizes do not halve evenly
IMAGES = [
    (unet, 256, "4", 50),
    (unet, 256, "2x2", 50),
    (stack, 128, "4", 20),
    (stack, 75, "2", 1),
    (stack, 61, "2x2", 1),
]


@pytest.mark.parametrize(("make", "size", "mesh", "fewer"), IMAGES)
def test_images_shrink_with_the_windows_that_read_them(
    make: Callable[[int, int], Graph], size: int, mesh: str, fewer: int
) -> None:
    plan = pipeline.plan(make(size, 3), Mesh.parse(mesh), EAGER, request=Request())
    assert plan.analysis is not None
    program = plan.analysis.program
    assert any(any(value.sharding.halo_sizes) for value in program.values.values())
    small = shrink(program)
    assert [told(done) for done in small.instructions] == [told(done) for done in program.instructions]
    assert {n: v.sharding for n, v in small.values.items()} == {n: v.sharding for n, v in program.values.items()}
    elements = [sum(math.prod(kind.shape) for kind in each.graph.types.values()) for each in (program, small)]
    assert elements[1] * fewer < elements[0]
    assert validate(program).verdict == "equal"
