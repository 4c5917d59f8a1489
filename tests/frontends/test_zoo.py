"""The zoo's documents: published sizes, names, training steps, what the command writes, plans that run."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest

from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.frontends.torch import import_torch
from planner.frontends.zoo import MODELS, import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ops import OPS
from planner.pipeline import plan, validate_plan
from tests.testing.command_line import refused, shardplan

# Parameters in all, as published or counted from the published checkpoints.
PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3-175b": 174_604_259_328,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-65b": 65_285_660_672,
    "llama-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gemma-3-12b": 11_766_034_176,
    "gemma-3-27b": 27_009_346_304,
    "deepseek-v3": 671_026_404_352,
}
# Billions of parameters as published: in the technical reports and model cards of `MODELS[name].source`. Gemma's are
# its embeddings and the others of its text model.
PUBLISHED_BILLIONS = {
    "llama-3-405b": "405",
    "qwen3-8b": "8.2",
    "qwen3-32b": "32.8",
    "qwen3-30b-a3b": "30.5",
    "qwen3-235b-a22b": "235",
    "gpt-oss-20b": "20.91",
    "gpt-oss-120b": "116.83",
    "gemma-3-12b": "11.8",
    "gemma-3-27b": "27.0",
    "deepseek-v3": "671",
}
# The smallest of each family that still has every part.
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"width": 256, "heads": 4, "feed_forward": 512, "vocabulary": 500},
    "llama-7b": {"width": 256, "heads": 4, "kv_heads": 4, "feed_forward": 512, "vocabulary": 500},
    "llama-70b": {"width": 256, "heads": 8, "kv_heads": 2, "feed_forward": 512, "vocabulary": 500},
    "mixtral-8x7b": {"width": 256, "heads": 8, "kv_heads": 4, "feed_forward": 512, "vocabulary": 500},
    "qwen3-30b-a3b": {"width": 256, "heads": 8, "head_width": 32, "feed_forward": 128, "vocabulary": 500, "experts": 8},
    "gpt-oss-20b": {"width": 256, "heads": 8, "head_width": 32, "feed_forward": 512, "vocabulary": 500, "experts": 8}
    | {"window": 64},
    "gemma-3-27b": {"width": 256, "heads": 8, "head_width": 32, "feed_forward": 512, "vocabulary": 500, "window": 64},
    "deepseek-v3": {"width": 256, "heads": 8, "head_width": 32, "feed_forward": 512, "vocabulary": 500, "experts": 16}
    | {"query_rank": 64, "kv_rank": 32, "turned_width": 16, "expert_width": 128},
}
# name, options, what is wrong
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("llama-8b", {}, "unknown model"),
    ("gpt2", {"dtype": "i32"}, "dtype"),
    ("gpt2", {"train": "adagrad"}, "train"),
    ("gpt2", {"layers": 0}, "layers"),
    ("gpt2", {"layers": 10**9}, "layers"),
    ("gpt2", {"batch": 0}, "batch"),
    ("gpt2", {"seq": -1}, "seq"),
    ("gpt2", {"heads": 7}, "width"),
    ("gpt2", {"kv_heads": 4}, "kv_heads"),
    ("gpt2", {"experts": 4}, "experts"),
    ("llama-70b", {"kv_heads": 7}, "heads"),
    ("mixtral-8x7b", {"experts": 1}, "experts"),
    ("deepseek-v3", {"experts": 12}, "8 groups of equal size"),
    ("deepseek-v3", {"kv_heads": 8}, "heads of deepseek share no keys"),
    ("mixtral-8x7b", {"capacity": 0.0}, "capacity"),
    ("mixtral-8x7b", {"capacity": float("nan")}, "capacity"),
]
PRODUCTS = ("linear", "addmm", "matmul", "einsum", "scaled_dot_product_attention")


def graph_of(document: dict[str, Any], mesh: str = "1") -> Graph:
    return load_graph(GraphDocument.model_validate(document), Mesh.parse(mesh))


def parameters(document: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {entry["name"]: tuple(entry["shape"]) for entry in document["inputs"] if entry["kind"] == "parameter"}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_published_number_of_parameters(name: str) -> None:
    assert sum(map(prod, parameters(import_zoo(name)).values())) == PARAMETERS[name]


@pytest.mark.parametrize(("name", "published"), PUBLISHED_BILLIONS.items())
def test_the_number_of_parameters_rounds_to_the_published_figure(name: str, published: str) -> None:
    digits = len(published.partition(".")[2])
    assert abs(PARAMETERS[name] / 1e9 - float(published)) < 10**-digits


@pytest.mark.parametrize("name", MODELS)
def test_a_model_names_its_source(name: str) -> None:
    assert MODELS[name].source


@pytest.mark.frameworks("torch", "transformers")
@pytest.mark.parametrize(("kind", "name"), [("gpt2", "gpt2"), ("llama", "llama-7b")])
def test_products_and_parameters_are_those_that_torch_captures(kind: str, name: str) -> None:
    """What is pointwise is not compared: torch's export leaves norms, rotations and gelu in many small ops."""
    captured = import_torch(f"transformers:{kind}", batch=4, seq=128, layers=2)
    mine = import_zoo(name, batch=4, seq=128, layers=2, dtype="f32")
    assert parameters(mine) == parameters(captured)
    assert product_flops(graph_of(mine)) == product_flops(graph_of(captured))


def product_flops(graph: Graph) -> Counter[tuple[str, float]]:
    """How often there is which product, by its op and flops."""
    return Counter((op.op, OPS[op.op].count_flops(op.rule.sizes)) for op in graph.ops if op.op in PRODUCTS)


@pytest.mark.parametrize("train", ["sgd", "adam"])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_updates_every_parameter_and_state_in_order(name: str, train: str) -> None:
    document = import_zoo(name, layers=1, train=train)
    kept = [e for e in document["inputs"] if e["kind"] in ("parameter", "optimizer_state")]
    types = graph_of(document).types
    loss, *updated = document["outputs"]
    assert types[loss].shape == ()
    assert updated == [entry["next"] for entry in kept]
    assert [types[value] for value in updated] == [types[entry["id"]] for entry in kept]
    makers = {node["id"]: node["phase"] for node in document["nodes"]}
    assert {makers[value.partition(":")[0]] for value in updated} == {"update"}


@pytest.mark.parametrize("name", SMALL)
def test_the_backward_pass_has_two_products_for_every_one(name: str) -> None:
    """But five for the two of attention, whose weights are made anew, and one for the dispatch to experts."""
    flops = Counter[str]()
    for op in graph_of(import_zoo(name, layers=2, seq=64, train="sgd", **SMALL[name])).ops:
        if op.op.removesuffix("_backward") in PRODUCTS:
            flops[op.phase] += int(OPS[op.op].count_flops(op.rule.sizes))
    assert 1.9 <= flops["backward"] / flops["forward"] <= 2.5


def test_a_model_can_have_other_sizes() -> None:
    found = parameters(import_zoo("llama-70b", layers=1, width=512, heads=16))
    assert found["model.layers.0.self_attn.q_proj.weight"] == (512, 512)
    assert found["model.layers.0.self_attn.k_proj.weight"] == (64, 512)
    assert "model.layers.1.self_attn.k_proj.weight" not in found


def test_a_model_of_few_layers_has_one_with_experts() -> None:
    found = parameters(import_zoo("deepseek-v3", layers=2))
    assert "model.layers.0.mlp.down_proj.weight" in found
    assert found["model.layers.1.mlp.experts.down_proj"] == (256, 7168, 2048)


@pytest.mark.parametrize(("name", "windows"), [("gpt-oss-20b", [128, 0] * 2), ("gemma-3-27b", [1024] * 5 + [0])])
def test_layers_of_local_attention_come_before_global_ones(name: str, windows: list[int]) -> None:
    document = import_zoo(name, layers=len(windows))
    found = [node["attrs"] for node in document["nodes"] if node["op"] == "scaled_dot_product_attention"]
    assert [attrs.get("window", 0) for attrs in found] == windows


def test_an_expert_takes_its_share_of_the_tokens() -> None:
    for capacity, slots in ((1.0, 16), (1.25, 20), (100.0, 64)):
        document = import_zoo("mixtral-8x7b", layers=1, batch=2, seq=64, capacity=capacity)
        shapes = [node["outputs"][0]["shape"] for node in document["nodes"] if node["op"] == "silu"]
        assert shapes == [[2, 8, slots, 14336]]


@pytest.mark.parametrize(("name", "options", "words"), WRONG)
def test_unknown_models_and_sizes_that_do_not_fit_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        import_zoo(name, **options)


@pytest.mark.parametrize("train", [None, "adam"])
@pytest.mark.parametrize("name", SMALL)
def test_a_plan_of_a_small_model_runs_as_the_model_does(name: str, train: str | None) -> None:
    """Batch and width large enough that the plan does split them."""
    mesh = Mesh.parse("dp=2,tp=4")
    graph = graph_of(import_zoo(name, layers=1, batch=256, seq=128, train=train, **SMALL[name]), "dp=2,tp=4")
    verdict = validate_plan(plan(graph, mesh, load_profile("h100-sxm"))).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    assert verdict.counted_bytes == verdict.predicted_bytes
    assert train is None or verdict.counted_bytes


def test_the_command_writes_the_document(tmp_path: Path) -> None:
    written = tmp_path / "g.json.gz"
    answer = shardplan("import", "zoo", "gpt2", "--layers", 1, "--train", "adam", "-o", written, "--json")
    assert set(answer.json) == {"name", "nodes", "inputs", "digest"}
    again = shardplan("import", "zoo", "gpt2", "--layers", 1, "--train", "adam", "-o", written, "--json")
    assert again.json == answer.json
    assert answer.json["name"] == "gpt2"


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    refused(shardplan("import", "zoo", "llama-8b", "-o", tmp_path / "g.json"), "unknown model")
    refused(shardplan("import", "zoo", "gpt2", "--heads", 7, "-o", tmp_path / "g.json"), "width")
    refused(shardplan("import", "zoo", "gpt2", "--train", "x", "-o", tmp_path / "g.json"), "train")
