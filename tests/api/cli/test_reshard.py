"""`reshard` and `migrate` on the command line: programs between layouts are priced, run and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.testing.command_line import refused, shardplan
from tests.testing.small_documents import written
from tests.testing.transformer import transformer

SWAP = ["--mesh", "2x3", "--shape", "6x6", "--source", "[[0],[1]]", "--target", "[[1],[0]]"]
KEYS = {"name", "steps", "total_bytes", "max_device_bytes", "min_total_bytes", "verified"}
CASES = Path(__file__).parents[2] / "conformance/reshard_cases.json"

# source, target, more options, words of the error
BAD = [
    ("[[0],[2]]", "[[1]]", [], "unknown mesh axis (got 2"),
    ("[[-1]]", "[[1]]", [], "unknown mesh axis (got -1"),
    ("[[0],[0]]", "[[1]]", [], "mesh axis duplicated"),
    ("[[0],[],[1]]", "[[1]]", [], "source: more lists than dims (got 3; wanted at most 2"),
    ("[[0]]", '{"split_axes":[[0]],"sharded_dims_offsets":[0,2,5]}', [], "offsets of dim 0 (got (0, 2, 5)"),
    ("[[0]]", '{"split_axes":[[0]],"halo_sizes":[-1,0]}', [], "halo size is negative"),
    ("[[0]]", '{"split_axes":[[0]],"halo_sizes":[9,0]}', [], "halo of dim 0 (got 9; wanted at most 3)"),
    ("[[0]]", '{"split_axes":[[]],"partial":{"axes":[1],"reduction":"bitwise_or"}}', [], "target: partial bitwise_or"),
    ("[[0]]", "[[1]]", ["--dtype", "f33"], '--dtype (got "f33"; wanted'),
    ("[[0]]", "[[1]]", ["--shape", "6x"], "shape (got 6x"),
    ("[[0]", "[[1]]", [], "--source: line 1 column 5: not JSON"),
    ("[[0]]", "[[1]]", ["--memory-limit", "10"], "no program fits the memory limit (got 10; wanted at least"),
    ("[[0]]", "[[1]]", ["--target-mesh", "2x3", "--target-devices", "4-8"], "number of devices (got 5; wanted 6"),
    ("[[0]]", "[[1]]", ["--devices", "0,1,2,3,4,4"], "device number (got 4"),
    ("[[0]]", "[[1]]", ["--devices", "all"], "device numbers (got all"),
]


def test_a_swap_of_axes_is_one_verified_exchange() -> None:
    found = shardplan("reshard", *SWAP, "--json").json
    assert found.keys() >= KEYS
    assert [step["collective"] for step in found["steps"]] == ["exchange"]
    assert (found["total_bytes"], found["min_total_bytes"], found["max_device_bytes"]) == (104, 104, 24)
    assert (found["verified"], found["rounds"], sum(found["device_bytes"])) == (True, 3, 104)
    assert found["bound_s"] <= found["time_s"]


def test_a_schedule_lists_every_message_in_its_round() -> None:
    step = shardplan("reshard", *SWAP, "--json", "--schedule").json["steps"][0]
    assert len(step["schedule"]) == step["rounds"] == 3
    assert sum(size for messages in step["schedule"] for _, _, size in messages) == step["bytes"]
    for messages in step["schedule"]:
        for end in (0, 1):
            assert len({message[end] for message in messages}) == len(messages)


def test_the_text_has_the_figures_of_the_json() -> None:
    answer = shardplan("reshard", *SWAP)
    assert answer.code == 0
    assert "received 104 bytes in total (lower bound 104), at most 24 by one device" in answer.out
    assert answer.out.endswith("verified on every logical device\n")
    assert "not run" in shardplan("reshard", *SWAP, "--no-verify").out


def test_each_case_of_a_file_gives_one_line(tmp_path: Path) -> None:
    cases = json.loads(CASES.read_text())["cases"][:12]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": cases}))
    lines = [
        json.loads(line) for line in shardplan("reshard", "--cases", path, "--objective", "bytes").out.splitlines()
    ]
    assert [line["name"] for line in lines] == [case["name"] for case in cases]
    assert all(line["verified"] and line["total_bytes"] == line["min_total_bytes"] for line in lines)
    assert [line["min_total_bytes"] for line in lines] == [case["min_total_bytes"] for case in cases]
    cases[3]["source"]["split_axes"] = [[7]]
    path.write_text(json.dumps({"cases": cases}))
    refused(shardplan("reshard", "--cases", path), f"case {cases[3]['name']!r}: unknown mesh axis")


def test_a_tensor_goes_to_another_mesh() -> None:  # conformance 56
    stages = ["--mesh", "2", "--target-mesh", "4", "--shape", "8", "--source", "[[0]]", "--target", "[[0]]"]
    found = shardplan("reshard", *stages, "--target-devices", "2-5", "--json").json
    assert (found["verified"], found["total_bytes"], found["device_bytes"]) == (True, 32, [0, 0, 8, 8, 8, 8])
    assert shardplan("reshard", *stages, "--json").json["total_bytes"] == 24, "device 0 holds its part already"


def test_a_tensor_too_large_to_run_is_run_shrunk() -> None:
    large = ["--mesh", "2x4", "--shape", "65536x65536", "--source", "[[0],[1]]", "--target", "[[1]]"]
    assert shardplan("reshard", *large, "--json").json["verified"]
    other = [*large, "--target-mesh", "2x2", "--target-devices", "8-11"]
    assert shardplan("reshard", *other, "--json").json["verified"]


@pytest.mark.parametrize(("source", "target", "more", "words"), BAD)
def test_bad_input_is_one_clear_message(source: str, target: str, more: list[str], words: str) -> None:
    shape = [] if "--shape" in more else ["--shape", "6x6"]
    refused(shardplan("reshard", "--mesh", "2x3", *shape, "--source", source, "--target", target, *more), words)


def test_a_reshard_needs_a_case() -> None:
    refused(shardplan("reshard", "--mesh", "2"), "nothing to reshard")


def test_state_goes_from_one_plan_to_another(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", transformer(1, d=64, ff=128, heads=4, batch=8, seq=16))
    plans = {mesh: tmp_path / f"{mesh}.json" for mesh in ("2x2", "4", "2x4")}
    for mesh, path in plans.items():
        assert shardplan("plan", graph, "--mesh", mesh, "--memory-limit", "400KB", "-o", path).code == 0
    for one in plans.values():
        for other in plans.values():
            found = shardplan("migrate", one, other, "--json").json
            assert found["verified"]
            assert found["total_bytes"] == found["min_total_bytes"] == sum(v["total_bytes"] for v in found["values"])
            assert (one != other) or found["total_bytes"] == found["time_s"] == 0
    page = shardplan("migrate", plans["2x2"], plans["4"])
    assert "values move" in page.out
    assert page.out.endswith("verified on every logical device\n")


def test_plans_of_other_graphs_are_refused(tmp_path: Path) -> None:
    plans = []
    for width in (64, 128):
        graph = written(tmp_path / f"{width}.json", transformer(1, d=width, ff=128, heads=4, batch=8, seq=16))
        plans.append(tmp_path / f"plan{width}.json")
        assert shardplan("plan", graph, "--mesh", "2", "-o", plans[-1]).code == 0
    refused(shardplan("migrate", *plans), "state differs from the old plan's")
