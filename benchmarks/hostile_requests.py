"""Requests that are small to send and would be large to answer, or that their parsers would run, crash on or read for
minutes.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from typing import Any

from tests.testing.service import named

DEEP, WIDE, NODES = 100_000, 100_000, 30_000
STABLEHLO, TORCH = "text/x-stablehlo", "application/x-torch-export+json"
FUNCTION = "module {{ func.func public @main(%x: {}) -> {} {{ return %x : {} }} }}"
TENSOR = {"shape": [8, 8], "dtype": "f32"}


@dataclass(frozen=True)
class HostileRequest:
    """A POST request; `body` may be JSON that `json.dumps` would not write."""

    path: str
    body: bytes
    kind: str = "application/json"


def _plan(graph: dict[str, Any]) -> HostileRequest:
    return HostileRequest("/v1/plans", json.dumps({"graph": graph, "mesh": "2x4"}).encode())


def _model(kind: str, body: str | bytes) -> HostileRequest:
    return HostileRequest("/v1/plans?mesh=2x4", body if isinstance(body, bytes) else body.encode(), kind)


def _capacity(**question: object) -> HostileRequest:
    asked = {"graphs": [named("hostile")], "hardware": [{"name": "cpu"}], **question}
    return HostileRequest("/v1/capacity", json.dumps(asked).encode())


def _chain(last: int) -> dict[str, Any]:
    """Return a graph of as many ops as are allowed, whose first reads the one numbered `last`; -1: its input."""
    nodes = [
        {
            "id": f"n{k}",
            "op": "relu",
            "inputs": [f"n{k - 1}" if k else "x" if last < 0 else f"n{last}"],
            "outputs": [TENSOR],
        }
        for k in range(NODES)
    ]
    inputs = [{"id": "x", "kind": "input", "name": "x", **TENSOR}]
    return {**named("chain"), "inputs": inputs, "nodes": nodes, "outputs": [f"n{NODES - 1}"]}


def _many_dims() -> dict[str, Any]:
    graph = named("dims")
    return {**graph, "inputs": [{**graph["inputs"][0], "shape": [1] * WIDE}, *graph["inputs"][1:]]}


def _archive() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("hostile/models/model.json", b" " * (256 << 20))
    return written.getvalue()


def _sized(size: str) -> str:
    values = {"x": {"sizes": [{"as_expr": {"expr_str": size}}]}}
    return json.dumps({"graph_module": {"graph": {"tensor_values": values}}})


def list_hostile_requests(plan: str) -> dict[str, HostileRequest]:
    """Return requests by what they are; `plan` is the id of one that has ended."""

    def check(limits: str) -> HostileRequest:
        return HostileRequest("/v1/comparisons", json.dumps({"base": plan, "new": plan, "fail_on": limits}).encode())

    dims = f"tensor<{'1x' * WIDE}f32>"
    return {
        "JSON nested 100,000 deep": HostileRequest("/v1/plans", b"[" * DEEP),
        "a value of 100,000 dims": _plan(_many_dims()),
        "30,000 nodes in a cycle": _plan(_chain(NODES - 1)),
        "30,000 nodes": _plan(_chain(-1)),
        "StableHLO nested 100,000 deep": _model(STABLEHLO, "module {" + "(" * DEEP),
        "StableHLO of 100,000 dims": _model(STABLEHLO, FUNCTION.format(dims, dims, dims)),
        "torch.export JSON nested 100,000 deep": _model(TORCH, "[" * DEEP),
        "torch.export JSON of 4,000,000 values": _model(TORCH, "[" + "0," * 4_000_000 + "0]"),
        "torch.export JSON with a size that is code": _model(TORCH, _sized("__import__('time').sleep(60)")),
        "torch.export JSON with a power as size": _model(TORCH, _sized("9**9**9**9")),
        "a .pt2 file that inflates to 256 MiB": _model(TORCH, _archive()),
        "limits of a check that are spaces": check("time" + " " * 4_000 + "!"),
        "limits of a check that are brackets": check("time[" * 800),
        "limits of a check, 500 of them": check(",".join(f"time>{k}%" for k in range(500))),
        "a capacity question on 999,999,937 devices": _capacity(devices="999999937"),
        "a capacity question with eight unknown axes": _capacity(devices="735134400", mesh="x".join("?" * 8)),
    }
