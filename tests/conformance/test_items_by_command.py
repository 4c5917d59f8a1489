"""Items of the specification by text and command, against numbers that the documents or numpy state."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from planner.frontends.mlir import read_mlir, read_spmd
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_program
from planner.run.spmd_executor import run_spmd
from tests.testing.command_line import shardplan

MESSAGES = """mesh.mesh @m(shape = 2)
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = mesh.all_gather %x on @m mesh_axes = [0] gather_axis = 0 : tensor<4xf32> -> tensor<8xf32>
  %1 = mesh.all_slice %0 on @m mesh_axes = [0] slice_axis = 0 : tensor<8xf32> -> tensor<4xf32>
  %2 = mesh.send %x on @m mesh_axes = [0] destination = [1] : (tensor<4xf32>) -> tensor<4xf32>
  %3 = mesh.recv %x on @m mesh_axes = [0] source = [0] : (tensor<4xf32>) -> tensor<4xf32>
  return %x : tensor<4xf32>
}"""


def shards(text: str, array: np.ndarray) -> list[list[object]]:
    """Partition a function of one argument, and return what every device holds of its result."""
    graph, mesh = read_mlir(text)
    completed = propagate(graph, mesh)
    program = materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh))
    run = run_program(program, {graph.inputs[0].id: array}, np, precision="f64")
    return [held[0].tolist() for held in run.outputs]


# conformance 10
def test_a_dead_collective_goes_and_a_dead_message_stays(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(MESSAGES)
    for command in (["optimize", path], ["optimize", path, "--pass", "eliminate-dead-code"]):
        shown = shardplan(*command).out
        assert "all_gather" not in shown
        assert "all_slice" not in shown
        assert "mesh.send" in shown
        assert "mesh.recv" in shown


# conformance 13: 10x20x30, (1,2,3) -> 3 + 30 * 2 + 600 * 1
def test_the_linear_index_of_every_device_is_row_major() -> None:
    text = """mesh.mesh @m(shape = 3x4x5) func.func @f() -> (index, index, index, index) {
      %0 = mesh.process_linear_index on @m : index
      %1:3 = mesh.process_multi_index on @m axes = [0, 1, 2] : index, index, index
      return %0, %1#0, %1#1, %1#2 : index, index, index, index }"""
    run = run_spmd(read_spmd(text), {})
    answers = [[int(value.array) for value in column] for column in run.outputs]
    for linear, *place in zip(*answers, strict=True):
        assert linear == np.ravel_multi_index(tuple(place), (3, 4, 5))
    wide = read_spmd(text.replace("3x4x5", "10x20x30"))
    answers = [[int(value.array) for value in column] for column in run_spmd(wide, {}).outputs]
    assert [column[663] for column in answers] == [663, 1, 2, 3]


# conformance 28: a halo size that is a value
def test_a_halo_size_may_be_a_constant_of_the_program() -> None:
    text = """mesh.mesh @m(shape = 4)
    func.func @f(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
      %h = arith.constant 2 : i64
      %s = mesh.sharding @m split_axes = [[0]] halo_sizes = [1, %h] : !mesh.sharding
      %p = mesh.sharding @m split_axes = [[0]] : !mesh.sharding
      %xs = mesh.shard %x to %p : tensor<8x4xf32>
      %ys = mesh.shard %xs to %s annotate_for_users : tensor<8x4xf32>
      return %ys : tensor<8x4xf32>
    }"""
    array = np.arange(32.0).reshape(8, 4)
    held = shards(text, array)
    for device, rows in enumerate(held):
        first, last = max(2 * device - 1, 0), min(2 * device + 4, 8)
        inner = rows[first - (2 * device - 1) :][: last - first]
        assert inner == array[first:last].tolist()


# conformance 29: 4x14 by [0,2,5,9,14] on a mesh of 4
def test_offsets_cut_the_tensor_where_they_say() -> None:
    text = """shard.grid @m(shape = 4)
    func.func @f(%x: tensor<4x14xf32>) -> tensor<4x14xf32> {
      %s = shard.sharding @m split_axes = [[], [0]] sharded_dims_offsets = [0, 2, 5, 9, 14] : !shard.sharding
      %xs = shard.shard %x to %s : tensor<4x14xf32>
      return %xs : tensor<4x14xf32>
    }"""
    array = np.arange(56.0).reshape(4, 14)
    held = shards(text, array)
    assert held == [array[:, start:stop].tolist() for start, stop in ((0, 2), (2, 5), (5, 9), (9, 14))]
