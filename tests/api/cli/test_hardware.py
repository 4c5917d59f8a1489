"""`hardware fit` and `hardware calibrate`: measurements become a profile that plans are priced with."""

from __future__ import annotations

import json
from pathlib import Path

from planner.choose.hardware.network import Link
from planner.documents.hardware import read_hardware, read_profile
from tests.testing.command_line import refused, shardplan
from tests.testing.nccl_output import printed
from tests.testing.small_documents import GRAPH, written

NEAR = Link(9e-6, 200e9, 7e-7, 7e-7, 4e-6)
FAR = Link(2e-5, 20e9, 3e-6, 8e-6, 4e-5)


def test_a_profile_is_fitted_shown_and_used(tmp_path: Path) -> None:
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    files[0].write_text(printed("all_reduce", (NEAR, FAR), 4))
    files[1].write_text(printed("all_gather", (NEAR, FAR), 4, 2))
    mine = tmp_path / "mine.json"
    answer = shardplan("hardware", "fit", *files, "--profile", "h100-sxm", "--link", "efa", "-o", mine, "--json")
    assert answer.code == 0, answer.err
    assert [link["name"] for link in answer.json["links"]] == ["nvlink", "efa"]
    assert all(link["median_error_after"] < link["median_error_before"] for link in answer.json["links"])
    document = read_profile(str(mine))
    assert document["name"] == "mine"
    assert "one.txt, two.txt" in document["sources"]["links.efa"]
    assert read_hardware(str(mine)).links["infiniband"] == read_hardware("h100-sxm").links["infiniband"]
    planned = shardplan("plan", written(tmp_path / "g.json", GRAPH), "--mesh", "2x4", "--hardware", mine, "--json")
    assert planned.code == 0
    again = tmp_path / "again.json"
    assert shardplan("hardware", "fit", files[1], "--profile", mine, "--link", "efa", "-o", again).code == 0
    assert json.loads(again.read_text())["links"]["nvlink"] == document["links"]["nvlink"]


def test_kernels_are_fitted_to_own_times_and_what_does_not_generalize_is_refused(tmp_path: Path) -> None:
    rows = [(64 * (1 + each), 1e-4 * (1 + each)) for each in range(20)]
    times, mine = tmp_path / "times.csv", tmp_path / "mine.json"
    lines = [f"gemm,bf16,{m},4096,4096,{time_s}" for m, time_s in rows]
    times.write_text("\n".join(["op,dtype,m,n,k,time_s", *lines, "gemm,bf16,64,4096,4096,-1"]))
    answer = shardplan("hardware", "fit", times, "-o", mine, "--json")
    assert answer.code == 0, answer.err
    (own,) = answer.json["ops"]
    assert own["name"] == "gemm.bf16"
    assert own["median_error_after"] < own["median_error_before"]
    assert ["line 22: time_s" in fault for fault in answer.json["faults"]] == [True]
    assert "times.csv" in read_profile(str(mine))["sources"]["op_corrections.gemm.bf16"]
    planned = shardplan("plan", written(tmp_path / "g.json", GRAPH), "--mesh", "2x4", "--hardware", mine, "--json")
    assert planned.code == 0, planned.err
    assert "gemm.bf16: 20 measurements" in shardplan("hardware", "fit", times, "-o", mine).out
    times.write_text("\n".join(["op,dtype,m,n,k,time_s", *lines[:5]]))
    refused(shardplan("hardware", "fit", times, "-o", mine), "too few measured shapes")


def test_a_fit_of_nothing_ends_in_one_line(tmp_path: Path) -> None:
    empty, mine = tmp_path / "empty.txt", tmp_path / "mine.json"
    empty.write_text("nothing here\n")
    refused(shardplan("hardware", "fit", empty, "-o", mine), "no table of nccl-tests")
    refused(shardplan("hardware", "fit", tmp_path / "none.txt", "-o", mine), "cannot be read")
    refused(shardplan("hardware", "fit", empty, "--profile", "abacus", "-o", mine), "unknown hardware")
    empty.write_bytes(b"\xff\xfe\x00")
    refused(shardplan("hardware", "fit", empty, "-o", mine), "not UTF-8")


def test_the_device_at_hand_is_measured_and_plans_are_priced_with_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    asked = ("--backend", "numpy", "--op", "relu", "--op", "sqrt")
    answer = shardplan("hardware", "calibrate", *asked, "-o", mine, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["name"] == "mine"
    hardware = read_hardware(str(mine))
    assert hardware.links == read_hardware("cpu").links
    assert sorted(hardware.curves) == ["relu.f32", "sqrt.f32"]
    planned = shardplan("plan", written(tmp_path / "g.json", GRAPH), "--mesh", "2x4", "--hardware", mine, "--json")
    assert planned.code == 0
    refused(shardplan("hardware", "calibrate", "--backend", "abacus", "-o", mine), "unknown backend")
    refused(shardplan("hardware", "calibrate", "--op", "dream", "-o", mine), "no such op to measure")
