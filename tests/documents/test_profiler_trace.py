"""Chrome traces of torch.profiler are read as rows of ops with shapes, dtypes, durations and scopes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.documents.profiler_trace import ProfiledOp, read_profiler_trace
from planner.errors import InvalidDocument

near: Any = pytest.approx


def _event(cat: str, name: str, start: float, length: float, **args: Any) -> dict[str, Any]:
    named = {key.replace("_", " "): value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length, "args": named}


def _write(folder: Path, events: list[Any]) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_ops_have_their_scope_their_tensors_and_the_kernels_below_them(tmp_path: Path) -> None:
    """A linear layer of bf16 in a scope, whose product launched a kernel; scalars and metadata are no tensors."""
    dims, types = [[8, 64], [64, 64], []], ["c10::BFloat16", "c10::BFloat16", ""]
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        _event("cpu_op", "Step", 0, 52),
        _event("user_annotation", "matmul", 0, 50),
        _event("cpu_op", "aten::linear", 0, 40, External_id=1, Input_Dims=dims, Input_type=types),
        _event("cpu_op", "aten::mm", 10, 20, External_id=2, Input_Dims=dims, Input_type=types),
        _event("kernel", "gemm", 100, 7, External_id=2) | {"tid": 7},
        _event("user_annotation", "matmul", 55, 20),
        _event("cpu_op", "aten::relu", 60, 5),
    ]
    product, layer, _, last = read_profiler_trace(_write(tmp_path, events))
    tensors = ((8, 64), (64, 64)), ("bf16", "bf16")
    assert product == ProfiledOp(
        "aten::mm", *tensors, host_s=near(2e-5), device_s=near(7e-6), scope="matmul", run=0, depth=1
    )
    assert layer == ProfiledOp(
        "aten::linear", *tensors, host_s=near(4e-5), device_s=near(7e-6), scope="matmul", run=0, depth=0
    )
    assert layer.time_s == layer.device_s
    assert (last.op, last.scope, last.run, last.time_s) == ("aten::relu", "matmul", 1, near(5e-6))


BAD: tuple[tuple[Any, str], ...] = (
    ([], "no list traceEvents"),
    ({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": "now", "dur": 1}]}, "traceEvents/0"),
    ({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -1}]}, "traceEvents/0"),
)


@pytest.mark.parametrize(("document", "message"), BAD)
def test_other_json_and_damaged_events_are_refused(document: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidDocument, match=message):
        read_profiler_trace(path)


def test_a_trace_of_torch_itself_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
    with torch.profiler.profile(record_shapes=True) as measured, torch.profiler.record_function("layer"):
        torch.nn.functional.linear(torch.ones(8, 64), torch.ones(32, 64))
    measured.export_chrome_trace(str(tmp_path / "trace.json"))
    rows = [row for row in read_profiler_trace(tmp_path / "trace.json") if row.depth == 0 and row.scope == "layer"]
    assert [(row.op, row.shapes, row.dtypes) for row in rows if row.op == "aten::linear"] == [
        ("aten::linear", ((8, 64), (32, 64)), ("f32", "f32"))
    ]
    assert all(row.time_s > 0 for row in rows)
