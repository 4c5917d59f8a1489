"""The form after partition: device groups and index arithmetic are read as calls over mesh axes, and written back."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InvalidRequest, ShardplanError, UnsupportedOp
from planner.export.mlir import print_spmd, print_with_device_groups
from planner.frontends.mlir import holds_collectives, read_spmd
from planner.ir.mesh import Mesh
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.lower_program import lower_program
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from planner.run.spmd_executor import run_spmd
from planner.spmd.device_groups import find_group_axes, find_index_axes
from tests.testing.command_line import refused, shardplan
from tests.testing.lowered_programs import check_outputs
from tests.testing.random_graphs import random_graph
from tests.testing.seeds import at_least, seeds

MESHES = ("2", "2x3", "4x2x2", "2x1x3")
FULL = """mesh.cluster @mesh0(rank = 1, dim_sizes = [2])
func.func @f(%x: tensor<8xf32>) -> tensor<4xf32> attributes {mesh_cluster = @mesh0} {
  %idx = mesh.idx {axis = 0 : index} : index
  %c4 = arith.constant 4 : index
  %start = arith.muli %idx, %c4 : index
  %1 = "mhlo.dynamic_slice"(%x, %start) {slice_sizes = dense<4> : tensor<1xi64>}
      : (tensor<8xf32>, index) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}"""


def body(line: str, mesh: str = "mesh.mesh @m(shape = 2x2)") -> str:
    return f"""{mesh}
func.func @f(%x: tensor<4x4xf32>) attributes {{mesh_cluster = @m}} {{
  %i = mesh.process_linear_index on @m : index
  %p:2 = mesh.process_multi_index on @m : index, index
  %two = arith.constant 2 : index
  %three = arith.constant 3 : index
  {line}
  return
}}"""


def grouped(op: str, attrs: str, result: str = "4x4", region: str = "") -> str:
    return f'%0 = "mhlo.{op}"(%x) {region}{{{attrs}}} : (tensor<4x4xf32>) -> tensor<{result}xf32>'


def combiner(word: str) -> str:
    return f"""({{ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = mhlo.{word} %a, %b : tensor<f32>
      "mhlo.return"(%s) : (tensor<f32>) -> () }}) """


GROUPS = "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
CALLS = [
    (
        grouped("all_gather", f"all_gather_dim = 1 : i64, {GROUPS}, use_global_device_ids", "4x8"),
        "all_gather(%x) mesh_axes=[1] gather_axis=1 : f32[4,8]",
    ),
    (
        grouped("all_reduce", "replica_groups = dense<[[0, 2, 1, 3]]> : tensor<1x4xi64>", region=combiner("minimum")),
        "all_reduce(%x) mesh_axes=[1,0] reduction=min : f32[4,4]",
    ),
    (
        grouped("reduce_scatter", f"scatter_dimension = 0 : i64, {GROUPS}", "2x4", combiner("add")),
        "reduce_scatter(%x) mesh_axes=[1] scatter_axis=0 : f32[2,4]",
    ),
    (
        grouped("all_to_all", f"split_dimension = 0, concat_dimension = 1, split_count = 2, {GROUPS}", "2x8"),
        "all_to_all(%x) mesh_axes=[1] split_axis=0 concat_axis=1 : f32[2,8]",
    ),
    (
        grouped("collective_permute", "source_target_pairs = dense<[[0, 3], [1, 0]]> : tensor<2x2xi64>"),
        "collective_permute(%x) mesh_axes=[0,1] pairs=[[0,3],[1,0]] : f32[4,4]",
    ),
    (
        "%s = arith.muli %p#1, %two : index"
        " %0 = tensor.extract_slice %x[%s, 0] [2, 4] [1, 1] : tensor<4x4xf32> to tensor<2x4xf32>",
        "all_slice(%x) mesh_axes=[1] slice_axis=0 : f32[2,4]",
    ),
    (  # the remainder of the linear index is the place along the last axis, the quotient that along the first
        "%r = arith.remui %i, %two : index %q = arith.divui %i, %two : index %d = arith.muli %r, %two : index"
        " %s = arith.addi %d, %q : index"
        " %0 = tensor.extract_slice %x[0, %s] [4, 1] [1, 1] : tensor<4x4xf32> to tensor<4x1xf32>",
        "all_slice(%x) mesh_axes=[1,0] slice_axis=1 : f32[4,1]",
    ),
]
REFUSED = [
    (grouped("all_gather", "all_gather_dim = 0, " + GROUPS.replace("1], [2, 3", "3], [1, 2"), "8x4"), "replica_groups"),
    (grouped("all_gather", "all_gather_dim = 0, " + GROUPS.replace("2, 3", "0, 1"), "8x4"), "replica_groups"),
    (grouped("all_gather", "all_gather_dim = 0", "8x4"), "attribute replica_groups"),
    (grouped("all_gather", f"all_gather_dim = 7, {GROUPS}", "8x4"), "gather_axis is out of bounds"),
    (grouped("all_reduce", GROUPS, region=combiner("subtract")), "reduction"),
    ("%0 = tensor.extract_slice %x[%i, 0] [2, 4] [1, 1] : tensor<4x4xf32> to tensor<2x4xf32>", "slice (got dim 0 of 4"),
    ("%0 = tensor.extract_slice %x[2, 0] [2, 4] [1, 1] : tensor<4x4xf32> to tensor<2x4xf32>", "slice (got dim 0 of 4"),
    ("%0 = tensor.extract_slice %x[0, 0] [4, 4] [1, 2] : tensor<4x4xf32> to tensor<4x2xf32>", "strides"),
    ("%z = arith.constant 0 : index %0 = arith.divui %i, %z : index", "division by zero"),
]  # fmt: skip


@pytest.mark.parametrize("mesh", MESHES)
def test_axes_are_found_from_their_groups_and_places_alone(mesh: str) -> None:
    devices = Mesh.parse(mesh)
    long = [axis for axis, size in enumerate(devices.shape) if size > 1]
    for count in range(len(long) + 1):
        for axes in permutations(long, count):
            assert find_index_axes(devices, devices.group_index(axes)) == axes
            assert find_group_axes(devices, devices.groups(axes)[::-1]) == axes
    assert find_index_axes(devices, np.arange(devices.devices) * 2) is None
    assert find_group_axes(devices, np.zeros((1, devices.devices), np.int64)) is None


# conformance 87: mesh 2, 8xf32 as [[0]]: the argument is whole, start = idx * 4, slice size 4
def test_the_rfcs_variant_with_full_arguments_is_read_and_written() -> None:
    program = read_spmd(FULL)
    assert [str(done).partition(" = ")[2] for done in program.instructions] == [
        "all_slice(%x) mesh_axes=[0] slice_axis=0 : f32[4]"
    ]
    run = run_spmd(program, {"x": [np.arange(8, dtype="f4")] * 2})
    assert [shard.array.tolist() for shard in run.outputs[0]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    written = print_with_device_groups(program, "f")
    assert "mesh.idx {axis = 0 : i64}" in written
    assert '"mhlo.dynamic_slice"(%x, %start) {slice_sizes = dense<[4]>' in written
    assert read_spmd(written) == program


# conformance 88: replica_groups; mesh 2 axis 0 -> [[0,1]]
@pytest.mark.parametrize(("line", "wanted"), CALLS)
def test_device_groups_are_read_as_mesh_axes(line: str, wanted: str) -> None:
    program = read_spmd(body(line))
    assert [str(done).partition(" = ")[2] for done in program.instructions if "%0" in str(done)] == [wanted]
    assert read_spmd(print_with_device_groups(program)).instructions[-1] == program.instructions[-1]


@pytest.mark.parametrize(("line", "words"), REFUSED)
def test_groups_and_slices_of_no_mesh_axes_are_refused_by_name(line: str, words: str) -> None:
    with pytest.raises(ShardplanError) as caught:
        read_spmd(body(line))
    assert words in str(caught.value)
    assert "text: line 7 column " in str(caught.value)


def test_an_index_that_only_the_run_tells_is_refused() -> None:
    text = FULL.replace("%x: tensor<8xf32>", "%x: tensor<8xf32>, %n: index").replace("%idx, %c4", "%n, %c4")
    with pytest.raises(UnsupportedOp, match="index known at run time only"):
        read_spmd(text)


def test_a_function_that_only_asks_is_a_program() -> None:
    text = (
        "mesh.cluster @m(rank = 3, dim_sizes = [4, 8, 12])"
        " func.func @f() -> () attributes {mesh_cluster = @m} { %0 = mesh.size {axis = 1 : index} : index return }"
    )
    assert holds_collectives(text)
    assert [step.results for step in read_spmd(text).instructions] == [("0",)]


def test_groups_without_a_mesh_are_one_axis() -> None:
    line = grouped("all_gather", "all_gather_dim = 0, replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>", "12x4")
    text = f"func.func @f(%x: tensor<4x4xf32>) {{ {line} return }}"
    assert read_spmd(text).meshes["mesh"].shape == (3,)


def test_random_programs_are_written_with_device_groups_and_compute_the_same() -> None:
    cases, written = seeds(60, 3000), 0
    for seed in cases:
        graph, mesh = random_graph(seed)
        try:
            route = make_documented_path(graph, mesh)
            completed = propagate(graph, mesh)
            program = materialize_completed(graph, mesh, completed, route=route, full_arguments=bool(seed % 2))
            text = print_with_device_groups(lower_program(program))
        except ShardplanError:
            continue  # a conflict, uneven shards, or a collective that HLO does not have
        arrays = random_inputs(graph, np, "f64", seed=seed)
        arrays = {name: abs(array) + 1 if array.dtype.kind == "f" else array for name, array in arrays.items()}
        with np.errstate(all="ignore"):
            whole = run_whole(graph, arrays, np, precision="f64")
        read = read_spmd(text)
        check_outputs(read, program, arrays, whole, seed=seed)
        assert print_with_device_groups(read) == text
        written += 1
    assert written >= at_least(0.07, len(cases))


def test_partition_writes_the_form_after_partition(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(FULL)
    assert holds_collectives(path)
    assert "mhlo.dynamic_slice" in shardplan("partition", path, "--format", "mhlo").out
    assert "all_slice %x" in shardplan("optimize", path).out
    halo = (
        "%0 = mesh.update_halo %x on @m split_axes = [[0]] source_halo_sizes = [0, 0] destination_halo_sizes = [1, 1]"
    )
    path.write_text(body(f"{halo} : tensor<4x4xf32> -> tensor<6x4xf32>"))
    refused(shardplan("partition", path, "--format", "mhlo"), "no form with device groups (got update_halo")
    with pytest.raises(InvalidRequest, match="shards of one size"):
        print_with_device_groups(
            read_spmd(
                body("%0 = mesh.all_slice %x on @m mesh_axes = [0] slice_axis = 0 : tensor<4x4xf32> -> tensor<?x4xf32>")
            )
        )


# conformance 12: sizes that are known become numbers; conformance 15: size of axis 1 of [2,4,8] = 4
def test_optimize_folds_queries_of_known_sizes(tmp_path: Path) -> None:
    path = tmp_path / "queries.mlir"
    path.write_text(
        "mesh.mesh @m(shape = 4x?x2) func.func @f() -> (index, index) {"
        " %0:2 = mesh.mesh_shape @m axes = [2, 1] : index, index return %0#0, %0#1 : index, index }"
    )
    shown = shardplan("optimize", path).out
    assert "%0 = arith.constant 2 : index" in shown
    assert "mesh.mesh_shape @m axes = [1]" in shown
    assert len(read_spmd(shown).outputs) == 2
    path.write_text(
        "mesh.cluster @m(rank = 3, dim_sizes = [2, 4, 8])"
        " func.func @f() -> index attributes {mesh_cluster = @m}"
        " { %0 = mesh.size {axis = 1 : index} : index return %0 : index }"
    )
    shown = shardplan("optimize", path).out
    assert "arith.constant 4 : index" in shown
    assert "mesh.size" not in shown
    assert print_spmd(read_spmd(shown)) + "\n" == shown
