"""Predicted times of kernels: bounds, order, intervals, and one reason for every row that cannot be predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.choose.hardware import list_profiles, load_profile
from planner.choose.hardware.op_classes import OP_CLASSES
from planner.choose.hardware.op_times import list_fitted, load_fits, read_fits
from planner.usecases.predict_ops import predict_ops
from planner.usecases.predict_rows import RowProfiles
from tests.testing.command_line import shardplan
from tests.testing.kernel_rows import ALL_REDUCE, DECODE, EXPERTS, GEMM, PREDICTED, ROUTED

# row, words of the reason
REFUSED: list[tuple[object, str]] = [
    ("no JSON", "a row"),
    ([GEMM], "a row"),
    ({}, "unknown op"),
    (GEMM | {"op": ["gemm"]}, "unknown op"),
    (GEMM | {"gpu": "h10000"}, "--like"),
    (GEMM | {"gpu": None}, "a device"),
    (GEMM | {"dtype": "fp3"}, "element type"),
    (GEMM | {"dtype": ["bf16"]}, "element type"),
    (GEMM | {"gpu": "a100-sxm", "dtype": "fp8"}, "element type that the device lacks"),
    (GEMM | {"m": 0}, "m: number"),
    (GEMM | {"m": True}, "m: number"),
    (GEMM | {"m": float("nan")}, "m: number"),
    (GEMM | {"m": 10**400}, "m: number"),
    ({key: GEMM[key] for key in ("op", "gpu", "dtype", "m", "n")}, "k: number"),
    (DECODE | {"head_dim": 128, "kv_heads": 64}, "contradiction"),
    (EXPERTS | ROUTED | {"topk": 300}, "contradiction"),
    (EXPERTS | ROUTED | {"distribution": {}}, "distribution"),
    (ALL_REDUCE | {"devices": 1}, "devices"),
    (ALL_REDUCE | {"devices": 1 << 40}, "devices"),
]


@pytest.mark.parametrize("row", PREDICTED, ids=str)
def test_a_time_lies_within_its_interval_and_above_the_peak(row: dict[str, Any]) -> None:
    (answer,) = predict_ops([row])
    assert 0 < answer["low_s"] <= answer["time_s"] <= answer["high_s"]
    assert answer["time_s"] >= answer["parts"].get("compute_s", 0)


@pytest.mark.parametrize(("row", "reason"), REFUSED, ids=str)
def test_a_row_that_cannot_be_predicted_has_a_reason_and_its_neighbours_a_time(row: object, reason: str) -> None:
    before, refused, after = predict_ops([GEMM, row, GEMM])
    assert reason in refused["error"]
    assert before == after
    assert "time_s" in before


def test_a_device_without_a_profile_is_taken_like_another_only_where_asked() -> None:
    rows = [GEMM | {"gpu": "h10000"}, GEMM]
    assert predict_ops(rows, RowProfiles(like=load_profile("h100-sxm")))[0] == predict_ops(rows)[1]


def test_a_shape_out_of_the_measured_range_is_flagged_and_has_a_wider_interval() -> None:
    inside, outside = predict_ops([GEMM | {"m": 32768}, GEMM | {"m": 1 << 20}])
    assert outside["out_of_range"]
    assert "out_of_range" not in inside
    assert outside["high_s"] / outside["time_s"] > inside["high_s"] / inside["time_s"]


def test_a_device_without_measurements_says_whose_efficiencies_it_has() -> None:
    own, other = predict_ops([GEMM, GEMM | {"gpu": "h20"}])
    assert other["efficiency_of"] in list_fitted()
    assert "efficiency_of" not in own


@pytest.mark.parametrize("device", list_fitted())
def test_every_fitted_class_names_its_source_and_its_error_on_rows_kept_out(device: str) -> None:
    assert device in list_profiles()
    for key, fit in read_fits(device).items():
        assert key.split(".")[0] in OP_CLASSES
        assert fit["source"]
        assert 0 <= fit["held_out"]["median"] <= fit["held_out"]["p90"]
        assert len(fit["correction"]) == load_fits(device)[key].lattice.values.size


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "b200-sxm", "h20", "l40s"])
def test_no_product_is_faster_than_the_peak(gpu: str) -> None:
    sizes = [1, 100, 4096, 65536, 1 << 20]
    rows = [GEMM | {"gpu": gpu, "m": m, "n": n, "k": k} for m in sizes for n in sizes for k in sizes]
    peak = load_profile(gpu).peak_flops["bf16"]
    for row, answer in zip(rows, predict_ops(rows), strict=True):
        assert answer["time_s"] >= 2 * row["m"] * row["n"] * row["k"] / peak * (1 - 1e-12)


def test_the_command_prints_one_line_for_each_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(GEMM) + "\n\n{\n" + "[" * 100_000 + "\n" + json.dumps(ALL_REDUCE) + "\n")
    answer = shardplan("predict", "ops", str(file))
    lines = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 0
    assert ["error" in line for line in lines] == [False, True, True, True, False]
