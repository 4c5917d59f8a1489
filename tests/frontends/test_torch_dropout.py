"""Dropout and random numbers of PyTorch: torch's distributions, masks that no sharding changes, and their gradients."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.torch import build_graph_document, build_module_document, import_torch
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.judge.analysis import Analysis
from planner.ops.op_def import OpContext, Span
from planner.ops.random_numbers import draw_mask
from planner.run.executor import SINGLE_DEVICE, run_program, run_whole
from planner.run.validate import validate
from tests.testing.hardware import EAGER
from tests.testing.random_shards import reassembled

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
calls, draws = import_module("tests.testing.torch_calls"), import_module("tests.testing.torch_draws")
training = import_module("tests.testing.torch_training")
nn, F = torch.nn, torch.nn.functional

pytestmark = pytest.mark.frameworks("torch")

TINY = {"vocab_size": 61, "n_embd": 32, "n_head": 4, "n_positions": 16, "bos_token_id": None, "eos_token_id": None}
MESHES = ["4", "2x2"]
BATCH, SEQ, WIDTH, P = 8, 12, 32, 0.25


def encoder(need_weights: bool = False) -> Any:
    """Vaswani and others, "Attention is all you need", 2017, with torch's dropout of 0.1."""

    def forward(self: Any, x: Any) -> Any:
        x = self.body(x)
        return self.last(x, x, x, need_weights=need_weights)[0].square().mean()

    layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
    last = nn.MultiheadAttention(WIDTH, 4, dropout=0.1, batch_first=True)
    return training.Calls(forward, body=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), last=last)


MODULES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "encoder": (encoder, (BATCH, SEQ, WIDTH)),
    "encoder with weights": (lambda: encoder(need_weights=True), (BATCH, SEQ, WIDTH)),
    "unet": (lambda: training.unet(0.2), training.SHAPE),
}


def graph_of(document: dict[str, Any], mesh: Mesh = SINGLE_DEVICE) -> Graph:
    return load_graph(validate_document(GraphDocument, document, "dropout"), mesh)


def seeds(document: dict[str, Any]) -> list[int]:
    """Return the seeds of the forward pass."""
    return [
        node["attrs"]["seed"] for node in document["nodes"] if "seed" in node["attrs"] and node["phase"] == "forward"
    ]


def random_arrays(graph: Graph) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        entry.id: random.integers(0, 9, entry.type.shape)
        if entry.type.dtype == "i64"
        else random.uniform(0.1, 0.9, entry.type.shape)
        for entry in graph.inputs
    }


def assert_sharded_equals_whole(document: dict[str, Any], mesh: Mesh) -> None:
    graph = graph_of(document, mesh)
    plan = pipeline.plan(graph, mesh, EAGER, request=Request(gap=0.05))
    assert isinstance(plan.analysis, Analysis)
    program, arrays = plan.analysis.program, random_arrays(graph)
    whole = run_whole(graph, arrays, np, precision="f64")
    ran = run_program(program, arrays, np, precision="f64")
    for place, output in enumerate(program.graph.outputs):
        got = reassembled(program, [outputs[place] for outputs in ran.outputs], np.float64, place)
        training.close(got, whole[output], 1e-9)
    assert validate(program).verdict == "equal"
    drawn = [run for run in program.instructions if isinstance(run, OpCall) and "seed" in run.op.attrs]
    assert drawn
    assert all(any(run.option) for run in drawn), "a draw that every device makes whole"


@pytest.mark.parametrize(("function", "mean", "variance", "values"), draws.DRAWS)
def test_a_call_draws_from_torch_s_distribution(function: Any, mean: float, variance: float, values: Any) -> None:
    program = torch.export.export(calls.Calls(function), (draws.X,), strict=False)
    (got,) = calls.run(build_graph_document(program, "draws"), [draws.X.numpy().copy()])
    wanted = function(draws.X)
    assert (got.shape, got.dtype) == (tuple(wanted.shape), wanted.numpy().dtype)
    assert abs(got.mean() - mean) <= 5 * (variance / got.size) ** 0.5
    assert abs(got.var() - variance) <= 0.1 * variance
    assert values is None or all(min(abs(each - value) for value in values) < 1e-6 for each in np.unique(got))


def test_the_gradient_of_dropout_is_that_of_the_elements_kept() -> None:
    def forward(self: Any, x: Any) -> Any:
        return (F.dropout(self.weight, P) * x).sum()

    module = training.Calls(forward, weight=nn.Parameter(torch.ones(40, 50, dtype=torch.float64)))
    x = torch.linspace(1, 2, 2000, dtype=torch.float64).reshape(40, 50)
    graph = graph_of(build_module_document(module, (x,), {}, train="sgd"))
    arrays = {entry.id: (x if entry.kind == "input" else module.weight.detach()).numpy() for entry in graph.inputs}
    values = run_whole(graph, arrays, np, precision="f64")
    spans = {"_1": Span(0, 40, 40), "_0": Span(0, 50, 50)}
    kept = draw_mask(OpContext(np, {"seed": 0}, {}, (), ()), list(spans.values()), P)
    loss, weight = (values[output] for output in graph.outputs)
    np.testing.assert_allclose(loss, (kept * x.numpy() / (1 - P)).sum())
    np.testing.assert_allclose(weight, 1 - training.RATE * kept * x.numpy() / (1 - P))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_drops_weights_as_torch_does_with_the_same_mask(causal: bool) -> None:
    shape = (2, 3, 5, 8)

    def forward(self: Any, x: Any) -> Any:
        return (F.scaled_dot_product_attention(self.q, self.k, self.v, None, P, causal) * x).sum()

    torch.manual_seed(0)
    parts = {name: nn.Parameter(torch.randn(shape, dtype=torch.float64)) for name in "qkv"}
    x = torch.randn(shape, dtype=torch.float64)
    module = training.Calls(forward, **parts)
    graph = graph_of(build_module_document(module, (x,), {}, train="sgd"))
    arrays = {entry.id: (x if entry.kind == "input" else parts[entry.name]).detach().numpy() for entry in graph.inputs}
    values = run_whole(graph, arrays, np, precision="f64")
    spans = [Span(0, size, size) for size in (2, 3, 5, 5)]
    kept = torch.from_numpy(draw_mask(OpContext(np, {"seed": 0}, {}, (), ()), spans, P)).double() / (1 - P)
    scores = parts["q"] @ parts["k"].mT / 8**0.5
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else torch.zeros(5, 5, dtype=torch.bool)
    loss = ((scores.masked_fill(hidden, -torch.inf).softmax(-1) * kept) @ parts["v"] * x).sum()
    loss.backward()
    wanted = [loss, *(part - training.RATE * part.grad for part in parts.values())]
    for output, want in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(values[output], want.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MODULES)
def test_every_call_of_a_step_has_a_seed_of_its_own(name: str) -> None:
    make, shape = MODULES[name]
    with torch.device("meta"):
        document = build_module_document(make(), (torch.zeros(shape),), {})
    assert len(seeds(document)) == len(set(seeds(document))) > 0


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", MODULES)
def test_a_sharded_step_equals_the_unsharded_one(name: str, mesh: str) -> None:
    make, shape = MODULES[name]
    with torch.device("meta"):
        document = build_module_document(make(), (torch.zeros(shape),), {}, train="sgd")
    assert_sharded_equals_whole(document, Mesh.parse(mesh))


def test_gpt2_is_trained_with_the_dropout_of_its_configuration() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install shardplan[torch]")
    document = import_torch("transformers:gpt2", batch=4, seq=8, layers=2, config=TINY, train="adam")
    shares = [
        node["attrs"].get("p", node["attrs"].get("dropout")) for node in document["nodes"] if "seed" in node["attrs"]
    ]
    assert shares == [0.1] * 14  # embedding, and attention and two residuals of each layer, forward and backward
    assert_sharded_equals_whole(document, Mesh.parse("2x2"))


def test_a_module_in_evaluation_mode_drops_nothing() -> None:
    make, shape = MODULES["encoder"]
    with torch.device("meta"):
        document = build_module_document(make().eval(), (torch.zeros(shape),), {}, train="sgd")
    assert seeds(document) == []
