"""Own measured steps become a correction of a profile, by which `predict steps` answers; bad lines are told apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.choose.hardware import Hardware, load_profile
from planner.choose.hardware.network import Link
from planner.documents.hardware import read_hardware, read_profile
from planner.usecases.fit_steps import fit_steps, read_steps
from planner.usecases.predict_rows import RowProfiles
from planner.usecases.predict_steps import predict_steps
from tests.testing.command_line import refused, shardplan
from tests.testing.nccl_output import printed

H100 = load_profile("h100-sxm")
SHAPE = {"layers": 16, "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn": 8192, "vocab": 32000, "gated": False}


def row(micro: int, seq: int, **others: Any) -> dict[str, Any]:
    sizes = {"micro_batch": micro, "global_batch": 64 * micro, "seq": seq}
    layout = {"layout": {"dp": 8}, "precision": "bf16", "remat": "none"}
    return {"shape": SHAPE, "device": "my-cluster", "devices": 8, **sizes, **layout, "stack": "megatron", **others}


ROWS = [row(micro, seq) for micro in (1, 2, 4, 8) for seq in (1024, 2048, 4096, 8192)]
FAULTS: list[tuple[object, str]] = [
    ("not json", "line 1: a row"),
    (ROWS[0], "line 1: step_s: number (wanted above 0"),
    (ROWS[0] | {"step_s": -1.0}, "line 1: step_s: number (got -1.0"),
    (ROWS[0] | {"step_s": True}, "line 1: step_s: number"),
    (ROWS[0] | {"step_s": float("nan")}, "line 1: step_s: number"),
    (ROWS[0] | {"step_s": 10**400}, "line 1: step_s: number"),
    (ROWS[0] | {"step_s": 1.0, "devices": 7}, "line 1: devices"),
]


def predicted_s(hardware: Hardware) -> np.ndarray:
    return np.array([each["step_s"] for each in predict_steps(ROWS, RowProfiles(every=hardware))])


def measured(scale: float, offset_s: float) -> list[dict[str, Any]]:
    seconds = (offset_s + scale * predicted_s(H100)).tolist()
    return [each | {"step_s": s} for each, s in zip(ROWS, seconds, strict=True)]


def test_what_was_measured_is_what_is_predicted() -> None:
    steps, faults = read_steps(measured(1.4, 0.25), H100, "mine.jsonl")
    fit = fit_steps(steps)
    assert (faults, fit.refused) == ([], ())
    (correction,) = fit.corrections
    assert (correction.name, correction.rows) == ("megatron", len(ROWS))
    assert correction.after < 1e-3 < correction.before
    own = replace(H100, step_corrections={"megatron": correction.fitted})
    assert predicted_s(own) == pytest.approx(0.25 + 1.4 * predicted_s(H100), rel=1e-3)
    answers = predict_steps([ROWS[0], ROWS[0] | {"stack": "nanotron"}], RowProfiles(every=own))
    assert ["correction_s" in each["parts"] for each in answers] == [True, False]
    assert answers[0]["step_s"] == pytest.approx(sum(answers[0]["parts"].values()))
    assert answers[0]["low_s"] <= answers[0]["step_s"] <= answers[0]["high_s"]


def test_a_fit_that_does_not_generalize_is_refused() -> None:
    rows = measured(1.0, 0.0)
    for number in range(0, len(rows), 3):
        rows[number]["step_s"] *= 3
    fit = fit_steps(read_steps(rows, H100, "mine.jsonl")[0])
    assert fit.corrections == ()
    assert "steps of 'megatron': the fit does not generalize" in fit.refused[0]


@pytest.mark.parametrize(("line", "fault"), FAULTS)
def test_a_bad_line_is_named_and_a_failed_run_is_left_out(line: object, fault: str) -> None:
    steps, faults = read_steps([line, ROWS[1] | {"step_s": 2.0}, ROWS[2] | {"status": "failed"}], H100, "mine.jsonl")
    assert [each.step_s for each in steps] == [2.0]
    assert len(faults) == 1
    assert fault in faults[0]


def test_steps_are_fitted_on_the_command_line_and_predicted_with_the_profile(tmp_path: Path) -> None:
    file, mine, asked = tmp_path / "steps.jsonl", tmp_path / "mine.json", tmp_path / "asked.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in (*measured(1.4, 0.25), {"step_s": 1.0})))
    answer = shardplan("hardware", "fit", file, "-o", mine, "--json")
    assert answer.code == 0, answer.err
    (own,) = answer.json["steps"]
    assert (own["name"], own["rows"]) == ("megatron", len(ROWS))
    assert ["line 17" in fault for fault in answer.json["faults"]] == [True]
    assert "steps.jsonl" in read_profile(str(mine))["sources"]["step_corrections.megatron"]
    asked.write_text(json.dumps(ROWS[5]))
    expected = 0.25 + 1.4 * predicted_s(H100)[5]
    for option in ("--hardware", "--like"):
        found = shardplan("predict", "steps", asked, option, mine)
        assert json.loads(found.out)["step_s"] == pytest.approx(expected, rel=1e-3)
    refused(shardplan("predict", "steps", asked, "--like", "h100-sxm", "--hardware", mine), "--like and --hardware")
    again = tmp_path / "again.json"
    assert shardplan("hardware", "fit", file, "--profile", mine, "-o", again).code == 0
    one, two = (read_hardware(str(path)).step_corrections["megatron"] for path in (mine, again))
    assert two.scale == pytest.approx(one.scale)


def test_own_kernels_and_links_count_in_predicted_kernels(tmp_path: Path) -> None:
    times, links, mine, asked = (tmp_path / name for name in ("times.csv", "links.txt", "mine.json", "rows.jsonl"))
    lines = [f"gemm,bf16,{64 * each},4096,4096,{1e-4 * each}" for each in range(1, 21)]
    times.write_text("\n".join(["op,dtype,m,n,k,time_s", *lines]))
    slow = Link(9e-6, 50e9, 7e-7, 7e-7, 4e-6)
    links.write_text(printed("all_reduce", (slow, slow), 8))
    assert shardplan("hardware", "fit", times, links, "-o", mine).code == 0
    kernel = {"op": "gemm", "gpu": "h100-sxm", "dtype": "bf16", "m": 640, "n": 4096, "k": 4096}
    sent = {"op": "all_reduce", "gpu": "h100-sxm", "devices": 8, "bytes": 1 << 28}
    asked.write_text(f"{json.dumps(kernel)}\n{json.dumps(sent)}")
    own, before = (
        [json.loads(line) for line in shardplan("predict", "ops", asked, "--hardware", name).out.splitlines()]
        for name in (mine, "h100-sxm")
    )
    for new, old in zip(own, before, strict=True):
        assert new["time_s"] > 2 * old["time_s"]
        assert new["low_s"] <= new["time_s"] <= new["high_s"]
