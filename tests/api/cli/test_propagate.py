"""`propagate`, `partition` and `export`: rewriting without the solver, from MLIR text and from graph documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.command_line import refused, shardplan
from tests.testing.small_documents import written
from tests.testing.transformer import transformer

MLP = """mesh.mesh @mesh0(shape = 2)
func.func @mlp(%x: tensor<8x16xf32>, %w1: tensor<16x32xf32>, %w2: tensor<32x16xf32>) -> tensor<8x16xf32> {
  %s = mesh.sharding @mesh0 split_axes = [[], [0]] : !mesh.sharding
  %w1s = mesh.shard %w1 to %s : tensor<16x32xf32>
  %z = arith.constant dense<0.0> : tensor<8x32xf32>
  %h = linalg.matmul ins(%x, %w1s : tensor<8x16xf32>, tensor<16x32xf32>) outs(%z : tensor<8x32xf32>) -> tensor<8x32xf32>
  %z2 = arith.constant dense<0.0> : tensor<8x16xf32>
  %y = linalg.matmul ins(%h, %w2 : tensor<8x32xf32>, tensor<32x16xf32>) outs(%z2 : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}
"""


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.mlir"
    path.write_text(MLP)
    return path


def test_one_annotation_becomes_all_of_them(mlp: Path) -> None:
    found = shardplan("propagate", mlp, "--json").json["annotations"]
    definitions = {a["value"]: a["sharding"]["split_axes"] for a in found if a["user"] is None}
    assert definitions == {"w1": [[], ["0"]], "h": [[], ["0"]], "y": [[], []]}
    assert next(a for a in found if a["user"] == "y" and a["value"] == "w2")["sharding"]["split_axes"] == [["0"], []]


@pytest.mark.parametrize("syntax", ["mesh", "text"])
def test_completed_annotations_are_printed(mlp: Path, syntax: str) -> None:
    answer = shardplan("propagate", mlp, "--format", syntax)
    assert answer.code == 0
    assert ("mesh.shard" in answer.out) == (syntax == "mesh")


def test_a_program_takes_shards_or_cuts_them_from_whole_arguments(mlp: Path) -> None:  # conformance 86, conformance 87
    split = shardplan("partition", mlp).out
    assert "argument %w1: f32[16,32] [· 0] local [16, 16]" in split
    assert "all_slice" not in split
    full = shardplan("partition", mlp, "--arguments", "full").out
    assert "argument %w1: f32[16,32] [· ·] local [16, 32]" in full
    assert "%w1.1: f32[16,32] [· 0] local [16, 16] = all_slice [0] dim 1 (%w1) groups {0,1}" in full


def test_a_graph_document_is_partitioned_on_the_mesh_given(tmp_path: Path) -> None:
    document = transformer(1, d=64, ff=128, heads=4, batch=8, seq=16)
    document["annotations"] = [{"value": "x", "sharding": {"split_axes": [["dp"]]}}]
    graph = written(tmp_path / "graph.json", document)
    program = shardplan("partition", graph, "--mesh", "dp=2,tp=2", "--json").json["program"]
    assert program[-1]["return"]
    assert all("collective" not in entry for entry in program), "data parallel needs none"
    optimized = shardplan("partition", graph, "--mesh", "dp=2,tp=2", "--optimize", "--json").json["program"]
    assert optimized == program


def test_a_plan_is_exported_as_mlir(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", transformer(1, d=64, ff=128, heads=4, batch=8, seq=16))
    plan = tmp_path / "plan.json"
    assert shardplan("plan", graph, "--mesh", "2x2", "-o", plan).code == 0
    text = shardplan("export", plan, "--format", "shard").out
    assert "shard.grid" in text
    assert shardplan("export", plan, "--format", "shard", "-o", tmp_path / "plan.mlir").out == ""
    assert (tmp_path / "plan.mlir").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mesh", "2x2"], "the text has a mesh of its own"),
        (["--traversal", "sideways"], "sideways"),
        (["--format", "html"], "html"),
    ],
)
def test_wrong_use_ends_in_one_message(mlp: Path, arguments: list[str], words: str) -> None:
    refused(shardplan("propagate", mlp, *arguments), words)


def test_a_graph_document_needs_a_mesh(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", transformer(1, d=64, ff=128, heads=4, batch=8, seq=16))
    refused(shardplan("partition", graph), "no mesh")


def test_text_that_does_not_parse_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(MLP.replace("[[], [0]]", "[[], [0]"))
    refused(shardplan("propagate", path), "bad.mlir: line 3 column 51")
