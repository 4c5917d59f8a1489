"""Predicted training steps: order, bounds, memory, and one reason for every row that cannot be predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.choose.hardware import load_profile
from planner.usecases.predict_steps import predict_steps, rank_steps
from tests.testing.command_line import shardplan

SHAPE = {"layers": 8, "hidden": 1024, "heads": 16, "kv_heads": 8, "ffn": 4096, "vocab": 32000, "gated": True}
ROW: dict[str, Any] = {
    "shape": SHAPE,
    "device": "h100-sxm",
    "devices": 8,
    "layout": {"dp": 8, "tp": 1, "pp": 1},
    "micro_batch": 2,
    "global_batch": 64,
    "seq": 2048,
    "precision": "bf16",
    "remat": "full",
}
LAYOUTS: list[dict[str, Any]] = [
    {"dp": 8},
    {"dp": 8, "zero_stage": 1},
    {"dp": 8, "fsdp": 8},
    {"dp": 8, "fsdp": 4},
    {"dp": 8, "zero_stage": 3},
    {"dp": 2, "tp": 4, "sequence_parallel": True},
    {"dp": 2, "tp": 2, "pp": 2},
    {"dp": 1, "tp": 2, "pp": 4, "virtual_stages": 2},
]
MOE = {"experts": 64, "topk": 4, "moe_ffn": 512, "shared_experts": 1, "dense_layers": 1}
KINDS: list[dict[str, Any]] = [
    {"shape": SHAPE | MOE, "layout": {"dp": 8, "ep": 8}},
    {"shape": SHAPE | {"attention": "mla"}},
    {"shape": SHAPE | {"window": 128, "window_every": 2}},
    {"shape": {"params": 52e9, "gated": False}, "layout": {"dp": 8, "zero_stage": 3}},
    {"layout": {"dp": 4, "cp": 2}},
    {"layout": {"dp": 1, "fsdp": 8}},
    {"precision": "fp8-mx"},
    {"precision": "te bf16"},
    {"precision": None},
    {"precision": None, "device": "p4"},
    {"device": "v100-16-sxm", "precision": "f16"},
    {"micro_batch": None},
    {"device": "a100-80-sxm", "precision": "f16"},
    {"device": "v100-sxm", "precision": "f32"},
    {"device": "mi300x"},
    {"source": "nanotron", "layout": {"dp": 4, "tp": 2, "zero_stage": 1}},
    {"stack": "megatron", "layout": {"dp": 4, "tp": 2}},
    {"repo": "microsoft/Megatron-DeepSpeed", "layout": {"dp": 2, "tp": 2, "pp": 2}},
    {"devices": 128, "device": "gb200", "layout": {"dp": 64, "tp": 2, "fsdp": 64}, "global_batch": 128},
]
WRONG: list[tuple[object, str]] = [
    ("text", "a row"),
    (ROW | {"layout": None}, "layout"),
    (ROW | {"device": "h1000"}, "device without a profile"),
    (ROW | {"devices": 7}, "devices"),
    (ROW | {"global_batch": 63}, "global_batch"),
    (ROW | {"global_batch": 1.5}, "number"),
    (ROW | {"precision": "int3"}, "precision"),
    (ROW | {"precision": [8]}, "precision"),
    (ROW | {"device": "v100", "precision": "bf16"}, "precision"),
    (ROW | {"remat": ["full"]}, "remat"),
    (ROW | {"shape": SHAPE | {"experts": 8}}, "topk"),
    (ROW | {"shape": SHAPE | MOE | {"topk": 65}}, "topk"),
    (ROW | {"shape": SHAPE | {"kv_heads": 17}}, "kv_heads"),
    (ROW | {"shape": SHAPE | {"attention": "linear"}}, "attention"),
    (ROW | {"shape": SHAPE | MOE, "layout": {"dp": 8, "ep": 16}}, "layout.ep"),
    (ROW | {"layout": {"dp": 4, "cp": 3}}, "cp"),
    (ROW | {"layout": {"dp": 8, "fsdp": 3}}, "fsdp"),
    (ROW | {"layout": {"dp": 8, "zero_stage": [3]}}, "zero_stage"),
    (ROW | {"layout": {"dp": 1, "tp": 2048}, "devices": 2048}, "layout.tp"),
    (ROW | {"layout": {"dp": 1, "pp": 16}, "devices": 16}, "layout.pp"),
]


def predict(**changes: Any) -> dict[str, Any]:
    return predict_steps([ROW | changes])[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_takes_the_sum_of_its_parts_and_no_less_than_the_peak_allows(layout: dict[str, Any]) -> None:
    found = predict(layout=layout)
    assert found["step_s"] == pytest.approx(sum(found["parts"].values()))
    assert min(found["parts"].values()) >= 0
    assert found["low_s"] < found["step_s"] < found["high_s"]
    matrices = 8 * (2 * 1024 * 1024 + 2 * 1024 * 512 + 3 * 1024 * 4096)
    flops = 6 * matrices * 64 * 2048 / 8
    assert found["step_s"] > flops / load_profile("h100-sxm").peak_flops["bf16"]


def test_more_layers_and_more_micro_batches_take_longer() -> None:
    assert predict(shape=SHAPE | {"layers": 16})["step_s"] > predict()["step_s"]
    assert predict(global_batch=128)["step_s"] > predict()["step_s"]


def test_sharded_states_and_recomputation_save_memory() -> None:
    plain, zero, fsdp = (predict(layout=layout)["peak_memory_bytes"] for layout in LAYOUTS[:3])
    assert fsdp < zero < plain
    assert predict()["peak_memory_bytes"] < predict(remat="none")["peak_memory_bytes"]


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_every_kind_of_row_has_time_and_memory(changes: dict[str, Any]) -> None:
    found = predict(**changes)
    assert found["step_s"] == pytest.approx(sum(found["parts"].values()))
    assert found["low_s"] < found["step_s"] < found["high_s"]
    assert found["peak_memory_bytes"] > 0


def test_a_size_that_is_assumed_is_listed_and_widens_the_interval() -> None:
    stated, open_row = predict(), predict(shape=SHAPE | {"vocab": None})
    assert open_row["assumed"] == ["vocab"]
    assert open_row["high_s"] / open_row["step_s"] > stated["high_s"] / stated["step_s"]


def test_the_software_that_a_row_names_decides_its_constants() -> None:
    names = (
        "nanotron",
        "bigscience-workshop/bigscience",
        "NVIDIA-NeMo/Megatron-Bridge",
        "AI-Hypercomputer/maxtext",
        "",
    )
    stacks = ["nanotron", "megatron-deepspeed", "megatron", "xla", "default"]
    assert [predict(repo=name)["stack"] for name in names] == stacks


def test_small_micro_batches_are_bound_by_the_host() -> None:
    small, large = (predict(seq=4096, micro_batch=size, stack="nanotron")["parts"] for size in (1, 8))
    assert small["host_s"] > small["compute_s"]
    assert large["host_s"] < large["compute_s"]


def test_stages_between_nodes_cost_more_than_within_one() -> None:
    layout = {"dp": 1, "tp": 8, "pp": 2}
    inside, across = (
        predict(layout={**layout, "tp": tp}, devices=2 * tp, stack="nanotron")["parts"]["host_s"] for tp in (4, 8)
    )
    assert across > 2 * inside


def test_fp8_products_and_split_contexts_save_time() -> None:
    shape = SHAPE | {"hidden": 8192, "heads": 64, "ffn": 28672}
    assert predict(shape=shape, precision="fp8")["step_s"] < predict(shape=shape)["step_s"]
    long = {"seq": 32768, "micro_batch": 1, "remat": "none", "global_batch": 8}
    split, whole = predict(layout={"dp": 4, "cp": 2}, **long), predict(layout={"dp": 8}, **long)
    assert split["peak_memory_bytes"] < whole["peak_memory_bytes"]


@pytest.mark.parametrize(("row", "reason"), WRONG)
def test_a_row_that_cannot_be_predicted_says_why(row: object, reason: str) -> None:
    (found,) = predict_steps([row])
    assert list(found) == ["error"]
    assert reason in found["error"]


def test_the_fastest_step_that_fits_comes_first() -> None:
    steps = ((1.0, False), (3.0, True), (2.0, True))
    answers: list[dict[str, Any]] = [{"error": "x"}, *({"step_s": s, "fits": fits} for s, fits in steps)]
    assert [each["line"] for each in rank_steps(answers)] == [4, 3, 2, 1]


def test_the_command_prints_a_line_for_each_line(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_text(json.dumps(ROW) + "\nnot json\n")
    lines = shardplan("predict", "steps", str(file)).out.splitlines()
    assert [set(json.loads(line)) & {"step_s", "error"} for line in lines] == [{"step_s"}, {"error"}]
