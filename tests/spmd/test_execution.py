"""Errors that the executor reports: reads of undefined elements, messages that do not match, shapes that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidMesh, RunFailed
from planner.ir.graph import Op, TensorType
from planner.ops import bind_op
from planner.run.spmd_executor import run_spmd
from planner.run.undef import PartialArray
from planner.spmd import INDEX, Cluster, LocalType, SpmdBuilder
from tests.testing.spmd_programs import answers, run_one

F32, I32 = LocalType((2,), "f32"), LocalType((2,), "i32")


def local_op(name: str, operands: list[TensorType], result: TensorType, **attrs: Any) -> Op:
    rule = bind_op(name, tuple(operands), (result,), attrs=attrs, notation=None)
    return Op("n", name, tuple(f"o{place}" for place in range(len(operands))), (result,), rule, attrs)


def shifted(kind: LocalType) -> tuple[SpmdBuilder, str]:
    """On a mesh of 3, a value that is undefined on device 0."""
    build = SpmdBuilder({"m": Cluster.parse("3")}, "m")
    x = build.argument("x", kind)
    return build, build.call("shift", x, mesh_axes=[0], shift_axis=0, offset=1)[0]


GIVEN = {"x": [np.array([1, 2]), np.array([3, 4]), np.array([5, 6])]}


@pytest.mark.parametrize("kind", [F32, I32, LocalType((2,), "bool")], ids=str)
def test_an_undefined_value_is_poisoned_and_its_read_reported(kind: LocalType) -> None:
    """conformance 48 and 54: naming value, device and index"""
    build, moved = shifted(kind)
    dtype = np.dtype({"f32": "f4", "i32": "i4", "bool": "?"}[kind.dtype])
    given = {"x": [each.astype(dtype) for each in GIVEN["x"]]}
    run = run_spmd(build.program([moved]), given)
    poisoned = run.outputs[0][0].array
    assert run.outputs[0][0].mask(np).all()
    if kind.dtype == "f32":
        assert np.isnan(poisoned).all()
    else:
        assert (poisoned == (np.iinfo(np.int32).min if kind.dtype == "i32" else False)).all()
    whole = TensorType((2,), kind.dtype)
    name = "logical_not" if kind.dtype == "bool" else "negate"
    made = build.local(local_op(name, [whole], whole), moved)
    with pytest.raises(RunFailed) as caught:
        run_spmd(build.program(made), given)
    assert str(caught.value) == (
        f"%{made[0]} = {name}(%{moved}): undefined element read (got %{moved} on device 0 at [0]; wanted a defined one)"
    )


def test_a_collective_reads_only_what_its_defined_result_needs() -> None:
    """conformance 44 and 47: undefined elsewhere does not matter"""
    build, moved = shifted(F32)
    given = {"x": [each.astype(np.float32) for each in GIVEN["x"]]}
    (kept,) = build.call("broadcast", moved, mesh_axes=[0], root=[2])
    assert answers(run_spmd(build.program([kept]), given)) == [[3, 4]] * 3
    for op, attrs in (("broadcast", {"root": [0]}), ("all_gather", {"gather_axis": 0}), ("all_reduce", {})):
        kept_calls = list(build.instructions)
        failing = build.program(build.call(op, moved, mesh_axes=[0], **attrs))
        with pytest.raises(RunFailed, match=rf"got %{moved} on device 0 at \[0\]"):
            run_spmd(failing, given)
        build.instructions = kept_calls


def test_moving_an_undefined_element_is_not_a_read() -> None:
    """conformance 55: an outer halo may be cut off again, but not added up"""
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x = build.argument("x", LocalType((3,), "f32"))
    attrs: dict[str, Any] = {"split_axes": [[0]], "source_halo_sizes": [0, 0], "destination_halo_sizes": [1, 1]}
    (wide,) = build.call("update_halo", x, **attrs)
    five, three = TensorType((5,), "f32"), TensorType((3,), "f32")
    (core,) = build.local(local_op("slice", [five], three, dim=0, start=1, stop=4), wide)
    (sliced,) = build.local(local_op("slice", [five], three, dim=0, start=0, stop=3), wide)
    given = {"x": [np.arange(3, dtype=np.float32), np.arange(3, 6, dtype=np.float32)]}
    run = run_spmd(build.program([core, sliced]), given)
    assert answers(run) == [[0, 1, 2], [3, 4, 5]]
    assert run.outputs[1][0].mask(np).tolist() == [True, False, False]
    total = build.local(local_op("sum", [three], TensorType((1,), "f32"), dims=[0], keepdim=True), sliced)
    with pytest.raises(RunFailed, match=rf"got %{sliced} on device 0 at \[0\]"):
        run_spmd(build.program(total), given)


def test_halos_at_the_ends_stay_undefined_and_may_be_updated_again() -> None:
    """conformance 55"""
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x = build.argument("x", LocalType((3,), "f32"))
    attrs: dict[str, Any] = {"split_axes": [[0]], "destination_halo_sizes": [1, 1]}
    (wide,) = build.call("update_halo", x, source_halo_sizes=[0, 0], **attrs)
    (again,) = build.call("update_halo", wide, source_halo_sizes=[1, 1], **attrs)
    run = run_spmd(build.program([again]), {"x": [np.full(3, device, np.float32) for device in range(2)]})
    first, last = run.outputs[0]
    assert [held.mask(np).tolist() for held in (first, last)] == [[True, *[False] * 4], [*[False] * 4, True]]
    assert (first.array[1:].tolist(), last.array[:-1].tolist()) == ([0, 0, 0, 1], [0, 1, 1, 1])


def test_a_partitioned_op_runs_its_span_of_the_loops() -> None:
    """conformance 87: a local op knows which part of the whole it is; 7 rows over 4 are 2, 2, 2, 1"""
    build = SpmdBuilder({"m": Cluster.parse("4")}, "m")
    x = build.argument("x", LocalType((None, 3), "f64"))
    whole = TensorType((7, 3), "f64")
    op = local_op("negate", [whole], whole)
    option = tuple((0,) if place == 0 else () for place in range(len(op.rule.loops)))
    (made,) = build.local(op, x, option=option)
    (gathered,) = build.call("all_gather", made, mesh_axes=[0], gather_axis=0)
    (exact,) = build.call("cast", gathered, types=[LocalType((7, 3), "f64")])
    rows = np.arange(21.0).reshape(7, 3)
    shards = [rows[0:2], rows[2:4], rows[4:6], rows[6:7]]
    run = run_spmd(build.program([exact]), {"x": shards})
    assert all((held.array == -rows).all() for held in run.outputs[0])
    with pytest.raises(RunFailed, match="operand 0 of device 1"):
        run_spmd(build.program([exact]), {"x": [rows[0:2], rows[2:3], rows[4:6], rows[6:7]]})
    build.call("cast", gathered, types=[LocalType((8, 3), "f64")])
    with pytest.raises(RunFailed, match=r"another shape on device . \(got \(7, 3\); wanted f64\[8,3\]"):
        run_spmd(build.program([exact]), {"x": shards})


def test_a_dynamic_root_is_one_for_the_group_and_in_range() -> None:
    """conformance 47"""
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x, root = build.argument("x", LocalType((1,), "i32")), build.argument("root", INDEX)
    program = build.program(build.call("broadcast", x, root, mesh_axes=[0], root=[None]))
    given = [np.array([n], np.int32) for n in (7, 8)]
    assert answers(run_spmd(program, {"x": given, "root": [np.int64(1)] * 2})) == [[8], [8]]
    with pytest.raises(RunFailed, match="devices 0 and 1 of one group disagree on root"):
        run_spmd(program, {"x": given, "root": [np.int64(0), np.int64(1)]})
    with pytest.raises(RunFailed, match=r"out of bounds, on device 0 \(got 2; wanted 0 to 1\)"):
        run_spmd(program, {"x": given, "root": [np.int64(2)] * 2})


def test_dynamic_halo_sizes_are_operands() -> None:
    """conformance 28"""
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x, after = build.argument("x", F32), build.argument("after", LocalType((), "i64"))
    attrs: dict[str, Any] = {"split_axes": [[0]], "source_halo_sizes": [0, 0], "destination_halo_sizes": [0, None]}
    program = build.program(build.call("update_halo", x, after, **attrs))
    given = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
    run = run_spmd(program, {"x": given, "after": [np.int64(1)] * 2})
    assert run.outputs[0][0].array.tolist() == [1, 2, 3]
    for sizes, words in (
        ((-1, -1), "destination_halo_sizes is negative, on device 0"),
        ((3, 3), r"halo of dim 0 is wider than the neighbour's core \(got 3; wanted at most 2\)"),
        ((1, 2), "devices 0 and 1 of one group disagree on destination_halo_sizes"),
    ):
        with pytest.raises(RunFailed, match=words):
            run_spmd(program, {"x": given, "after": [np.int64(size) for size in sizes]})


# shards on the devices of a 2x2 mesh, sizes of the source halo, words
ODD_SHARDS = [
    ([(2, 2), (2, 3), (2, 2), (2, 3)], [0, 0, 0, 0], None),
    ([(2, 2), (3, 2), (2, 2), (2, 2)], [0, 0, 0, 0], r"members 0 and 1: cores differ in dim 0 \(got 3; wanted 2\)"),
    ([(2, 2), (2, 2), (1, 2), (1, 2)], [1, 1, 0, 0], r"dim 0 is larger than the shard on device 2 \(got \[1, 1\]"),
]


@pytest.mark.parametrize(("shapes", "old", "words"), ODD_SHARDS)
def test_neighbouring_shards_agree_on_their_halos(
    shapes: list[tuple[int, int]], old: list[int], words: str | None
) -> None:
    """conformance 55: sizes that are known when the program runs; shards that differ along their own dim are right"""
    build = SpmdBuilder({"m": Cluster.parse("2x2")}, "m")
    x = build.argument("x", LocalType((None, None), "i32"))
    attrs: dict[str, Any] = {
        "split_axes": [[0], [1]],
        "source_halo_sizes": old,
        "destination_halo_sizes": [0, 0, 1, 0],
    }
    program = build.program(build.call("update_halo", x, **attrs))
    given = {"x": [np.full(shape, device, np.int32) for device, shape in enumerate(shapes)]}
    if words is None:
        assert [held.array.shape for held in run_spmd(program, given).outputs[0]] == [(2, 3), (2, 4)] * 2
    else:
        with pytest.raises(RunFailed, match=words):
            run_spmd(program, given)


def test_a_block_of_the_whole_tensor_differs_from_one_of_a_short_shard() -> None:
    """conformance 44: 16 over 3x2 leaves the last shard 4 elements, cut 3, 1"""
    given = [list(range(6)), list(range(6)), list(range(6, 12)), list(range(6, 12)), [12, 13, 14, 15], [12, 13, 14, 15]]
    attrs: dict[str, Any] = {"mesh_axes": [1], "slice_axis": 0}
    assert answers(run_one("3x2", "all_slice", given, **attrs))[4:] == [[12, 13], [14, 15]]
    assert answers(run_one("3x2", "all_slice", given, **attrs, block=3))[4:] == [[12, 13, 14], [15]]
    with pytest.raises(RunFailed, match="block too small"):
        run_one("3x2", "all_slice", given, **attrs, block=2)


def test_shapes_must_fit_within_a_group() -> None:
    """conformance 40 and 41: sizes are known when the program runs"""
    with pytest.raises(RunFailed, match="shapes differ within a group"):
        run_one("2", "all_gather", [[[1, 2]], [[1]]], mesh_axes=[0], gather_axis=0)
    assert answers(run_one("2", "all_gather", [[[1, 2]], [[3]]], mesh_axes=[0], gather_axis=1)) == [[[1, 2, 3]]] * 2


def test_a_program_with_unknown_mesh_sizes_is_verified_but_not_run() -> None:
    """conformance 2: unknown stays unknown, and is refused where a number is needed"""
    build = SpmdBuilder({"m": Cluster.parse("2x?")}, "m")
    x = build.argument("x", LocalType((4, 6), "f32"))
    (some,) = build.call("all_gather", x, mesh_axes=[0, 1], gather_axis=0)
    (half,) = build.call("all_slice", some, mesh_axes=[0], slice_axis=1)
    assert (str(build.types[some]), str(build.types[half])) == ("f32[?,6]", "f32[?,3]")
    with pytest.raises(InvalidMesh, match="mesh axis size is unknown"):
        run_spmd(build.program([half]), {})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "got 0 local tensors; wanted 2"),
        ([np.zeros(3, np.float32)] * 2, "has another shape on device 0"),
        ([np.zeros(2, np.int32)] * 2, "has another dtype on device 0"),
    ],
)
def test_arguments_must_be_as_declared(given: list[Any], words: str) -> None:
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x = build.argument("x", F32)
    with pytest.raises(RunFailed, match=words):
        run_spmd(build.program([x]), {"x": given})


def test_received_bytes_are_counted() -> None:
    """conformance 83: all_gather (n-1)B, all_reduce 2B(n-1)/n, reduce_scatter and all_to_all B(n-1)/n, all_slice 0"""
    given = [np.arange(8)] * 4
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("all_gather", {"gather_axis": 0}, 96),
        ("all_reduce", {}, 48),
        ("reduce_scatter", {"scatter_axis": 0}, 24),
        ("all_to_all", {"split_axis": 0, "concat_axis": 0}, 24),
        ("all_slice", {"slice_axis": 0}, 0),
    ]
    for op, attrs, wanted in cases:
        assert run_one("4", op, given, "i32", mesh_axes=[0], **attrs).received.tolist() == [[wanted] * 4], op


def test_an_undefined_argument_may_be_given() -> None:
    """conformance 48"""
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x = build.argument("x", F32)
    given = [PartialArray.all_undefined(np, (2,), np.dtype("float32")), np.array([1, 2], np.float32)]
    program = build.program(build.call("all_reduce", x, mesh_axes=[0]))
    with pytest.raises(RunFailed, match=r"got %x on device 0 at \[0\]"):
        run_spmd(program, {"x": given})
