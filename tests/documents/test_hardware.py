"""Hardware profiles from files: how they are read, and refusals with the place of the fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.choose.hardware import list_profiles, load_profile, parse_hardware, read_source
from planner.documents.canonical_json import digest_document
from planner.documents.hardware import load_planned_hardware, read_hardware, read_profile
from planner.documents.plans import read_plan
from planner.errors import ShardplanError
from tests.testing.command_line import refused, shardplan
from tests.testing.small_documents import GRAPH, LEFT_OUT, Document, changed, written

PROFILE: Document = json.loads(read_source("h100-sxm"))
CURVES = {"matmul": {"flops": [[1e3, 1e-6], [1e9, 1e-3]], "bytes": None}, "relu.f32": {"bytes": [[4e3, 2e-6]]}}

# A path in the document, its new value, and what the message names.
FAULTS: list[tuple[str, Any, str]] = [
    ("links.nvlink.bandwidth", LEFT_OUT, "links.nvlink.bandwidth: missing key"),
    ("links.nvlink.bandwidth", -1.0, "links.nvlink.bandwidth"),
    ("links.nvlink.bandwidth", 450.0, "links.nvlink.bandwidth"),
    ("links.nvlink.latency_s", 7.0, "links.nvlink.latency_s"),
    ("links.nvlink.speed", 1.0, "links.nvlink.speed: unknown key"),
    ("links.nvlink.switch.factor", 0.5, "links.nvlink.switch.factor"),
    ("links", {}, "links"),
    ("tiers.1.link", "string", "wanted one of nvlink, infiniband, efa, tcpxo"),
    ("tiers", [], "tiers"),
    ("peak_flops.f32", LEFT_OUT, "no rate of f32"),
    ("peak_flops.bf16", 989.4, "peak_flops.bf16"),
    ("peak_flops.float32", 1e12, "peak_flops.float32"),
    ("memory_bytes", 80, "memory_bytes"),
    ("memory_bytes", "80GB", "memory_bytes"),
    ("memory_bandwidth", LEFT_OUT, "memory_bandwidth: missing key"),
    ("compute_efficiency", 1.2, "compute_efficiency"),
    ("launch_s", True, "launch_s"),
    ("version", 1, "version"),
    ("colour", "red", "colour: unknown key"),
    ("curves", {"matmul": {"flops": [[1e3, 2e-6], [1e6, 1e-6]]}}, "curves.matmul: points of a curve"),
    ("curves", {"matmul": {"flops": [[1e3]]}}, "curves.matmul.flops[0]"),
    ("efficiency.product", [[1e9, 0.5], [1e9, 0.6]], "efficiency.product: points"),
    ("efficiency.convolution", [[1e9, 0.5]], "efficiency.convolution"),
]


def plan(folder: Path, *more: object) -> Document:
    output = folder / "plan.json"
    answer = shardplan("plan", written(folder / "g.json", GRAPH), "--mesh", "2x4", "-o", output, *more)
    assert answer.code == 0, answer.err
    found: Document = json.loads(output.read_text())
    return found


@pytest.mark.parametrize("name", list_profiles())
def test_every_built_in_profile_is_a_valid_document_with_sources(name: str) -> None:
    document = read_profile(name)
    assert parse_hardware(document) == load_profile(name)
    figures = {key for key in document if key not in ("format", "version", "name", "about", "sources", "links")}
    assert figures | {f"links.{link}" for link in document["links"]} <= set(document["sources"])


def test_a_profile_in_a_file_is_the_profile(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.json", PROFILE)
    assert read_hardware(str(path)) == load_profile("h100-sxm")
    named, filed = plan(tmp_path, "--hardware", "h100-sxm"), plan(tmp_path, "--hardware", path)
    assert named["id"] == filed["id"]


def test_a_plan_holds_the_profile_it_was_priced_with(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.json", changed(changed(PROFILE, "name", "mine"), "curves", CURVES))
    plan(tmp_path, "--hardware", path)
    assert load_planned_hardware(read_plan(tmp_path / "plan.json")) == read_hardware(str(path))


def test_an_older_plan_names_its_profile(tmp_path: Path) -> None:
    document = plan(tmp_path)
    for key in ("hardware.links", "hardware.tiers", "digest"):
        document = changed(document, key, LEFT_OUT)
    parts = {key: document[key] for key in ("mesh", "hardware", "request")}
    versions = document["solver"]["versions"]
    document["id"] = digest_document({"graph": document["graph"]["digest"], **parts, "versions": versions})
    assert load_planned_hardware(read_plan(written(tmp_path / "old.json", document))) == load_profile("h100-sxm")


def test_a_slower_device_and_link_in_a_file_are_priced(tmp_path: Path) -> None:
    slow = changed(changed(PROFILE, "links.nvlink.bandwidth", 1e9), "memory_bandwidth", 1e9)
    path = written(tmp_path / "slow.json", slow)
    fast = plan(tmp_path)["cost"]["step_s"]
    assert plan(tmp_path, "--hardware", path)["cost"]["step_s"] > fast


@pytest.mark.parametrize(("path", "value", "message"), FAULTS, ids=[f"{path}={value}" for path, value, _ in FAULTS])
def test_a_fault_is_named_with_its_path(tmp_path: Path, path: str, value: Any, message: str) -> None:
    file = written(tmp_path / "bad.json", changed(PROFILE, path, value))
    with pytest.raises(ShardplanError) as caught:
        read_hardware(str(file))
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_bad_profile_ends_a_command_in_one_line(tmp_path: Path) -> None:
    file = written(tmp_path / "bad.json", changed(PROFILE, "links.nvlink.bandwidth", -1.0))
    graph = written(tmp_path / "g.json", GRAPH)
    refused(shardplan("plan", graph, "--mesh", "2x4", "--hardware", file), "links.nvlink.bandwidth")
    refused(shardplan("plan", graph, "--mesh", "2x4", "--hardware", tmp_path / "none.json"), "cannot be read")
    refused(
        shardplan("plan", graph, "--mesh", "2x4", "--hardware", "none"),
        "wanted one of a100-pcie-40, a100-pcie-80, a100-sxm",
    )
