"""Which reshapes are removed and which stay; numbers do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.torch import build_graph_document
from planner.run.executor import SINGLE_DEVICE, run_whole

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch")

X = torch.linspace(-2, 2, 24).reshape(2, 3, 4)
W = torch.linspace(-1, 1, 20).reshape(4, 5)
V = torch.linspace(-1, 1, 15).reshape(5, 3)
B = torch.linspace(0, 1, 5)
C = torch.linspace(0, 1, 30).reshape(6, 5)
S = torch.tensor(2.0)
G = torch.linspace(-1, 1, 24).reshape(4, 6)


def conv1d(x: Any, w: Any, b: Any) -> Any:
    return torch.addmm(b, x.view(-1, 4), w).view(2, 3, 5)


def with_merged_used_twice(x: Any, w: Any, b: Any) -> Any:
    merged = x.view(-1, 4)
    return torch.addmm(b, merged, w).view(2, 3, 5), merged.exp()


def with_product_used_twice(x: Any, w: Any, b: Any) -> Any:
    made = torch.addmm(b, x.view(-1, 4), w)
    return made.view(2, 3, 5), made.exp()


def with_merged_as_output(x: Any, w: Any, b: Any) -> Any:
    merged = x.view(-1, 4)
    return torch.addmm(b, merged, w).view(2, 3, 5), merged


def with_product_as_output(x: Any, w: Any, b: Any) -> Any:
    made = torch.addmm(b, x.view(-1, 4), w)
    return made.view(2, 3, 5), made


def two_in_a_row(x: Any, w: Any, v: Any, b: Any) -> Any:
    hidden = torch.addmm(b, x.view(-1, 4), w).view(2, 3, 5)
    return torch.addmm(b[:3], hidden.view(-1, 5), v).view(2, 3, 3)


def with_a_split_between(x: Any, w: Any, v: Any, b: Any) -> Any:
    hidden = torch.addmm(b, x.view(-1, 4), w).view(2, 3, 5)
    return torch.nn.functional.linear(hidden, v.T).view(-1, 3)


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = [
    # around a product
    (conv1d, (X, W, B), ["addmm"]),
    (conv1d, (X, W, S), ["addmm"]),
    (conv1d, (X, W, C), ["reshape", "addmm", "reshape"]),
    (lambda x, w: torch.nn.functional.linear(x.view(-1, 4), w.T).view(2, 3, 5), (X, W), ["transpose", "linear"]),
    (lambda x, w, b: conv1d(x, w, b).exp(), (X, W, B), ["addmm", "exp"]),
    (lambda x, w, b: conv1d(x.exp().view(2, 3, 2, 2).view(2, 3, 4), w, b), (X, W, B), ["exp", "reshape", "addmm"]),
    (two_in_a_row, (X, W, V, B), ["addmm", "slice", "addmm"]),
    (with_a_split_between, (X, W, V, B), ["addmm", "transpose", "linear", "reshape"]),
    (lambda x, w, b: torch.addmm(b, x.view(-1, 4), w).view(3, 2, 5), (X, W, B), ["reshape", "addmm", "reshape"]),
    (lambda x, w, b: torch.addmm(b, x.view(6, 4), w).view(2, 15), (X, W, B), ["reshape", "addmm", "reshape"]),
    (lambda x, g: (x.view(4, 6) @ g.T).view(2, 2, 4), (X, G), ["reshape", "transpose", "matmul", "reshape"]),
    (lambda x, g: torch.nn.functional.linear(x.view(4, 6), g).view(2, 2, 4), (X, G), ["reshape", "linear", "reshape"]),
    (with_merged_used_twice, (X, W, B), ["reshape", "addmm", "exp"]),
    (with_product_used_twice, (X, W, B), ["reshape", "addmm", "reshape", "exp"]),
    (with_merged_as_output, (X, W, B), ["reshape", "addmm"]),
    (with_product_as_output, (X, W, B), ["reshape", "addmm", "reshape"]),
    # after another reshape
    (lambda x: x.view(6, 4).view(3, 2, 4).view(3, 8), (X,), ["reshape", "reshape"]),
    (lambda x: x.view(6, 4).view(24), (X,), ["reshape"]),
    (lambda x: x.view(2, 3, 2, 2).view(6, 2, 2).view(6, 4), (X,), ["reshape"]),
    (lambda x: x[None].unsqueeze(-1).unsqueeze(2), (X,), ["reshape"]),
    (lambda g: g.view(24).view(6, 4), (G,), ["reshape", "reshape"]),
    (lambda x: [x.view(6, 4).view(24), x.view(6, 4)], (X,), ["reshape", "reshape"]),
]


class Calls(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_only_reshapes_in_the_way_go_and_numbers_stay(case: int) -> None:
    function, args, ops = CASES[case]
    document = build_graph_document(torch.export.export(Calls(function), args, strict=False), "reshapes")
    assert [node["op"] for node in document["nodes"]] == ops
    graph = load_graph(validate_document(GraphDocument, document, "reshapes"), SINGLE_DEVICE)
    arrays = {entry.id: args[int(entry.id.removeprefix("args_"))].numpy() for entry in graph.inputs}
    values = run_whole(graph, arrays, np, precision="f32")
    wanted = function(*args)
    wanted = wanted if isinstance(wanted, tuple | list) else [wanted]
    for name, want in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(values[name], want.numpy(), rtol=2e-5, atol=1e-6)
