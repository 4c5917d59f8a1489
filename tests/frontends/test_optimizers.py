"""Every row of the table of optimizers updates as its authors' code does, and its training steps run sharded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner import Mesh, Request, plan, validate_plan
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidRequest
from planner.frontends.zoo import OPTIMIZERS, import_zoo
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.optimizers import RATE
from planner.frontends.zoo.update import append_update, next_values, parse_training
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs

SHAPES = {"wide": (4, 6), "tall": (6, 4), "square": (5, 5), "vector": (7,), "stack": (2, 3, 4)}
STEPS = 3
DECAY = "lr=0.01,weight_decay=0.1"
TINY: dict[str, Any] = {
    "layers": 1,
    "width": 32,
    "heads": 2,
    "feed_forward": 64,
    "vocabulary": 64,
    "batch": 8,
    "seq": 8,
}
Arrays = dict[str, Any]


def gradients() -> list[Arrays]:
    random = np.random.default_rng(0)
    return [{name: random.normal(size=shape) for name, shape in SHAPES.items()} for _ in range(STEPS)]


def parameters() -> Arrays:
    random = np.random.default_rng(1)
    return {name: random.normal(size=shape) for name, shape in SHAPES.items()}


def document(train: str, dtype: str = "f64", **options: Any) -> dict[str, Any]:
    """Updates alone, of parameters whose gradients are inputs."""
    builder = ModelBuilder(dtype)
    for name, shape in SHAPES.items():
        builder.input(name, shape)
    grads = {name: builder.input(f"{name}.grad", shape, "input") for name, shape in SHAPES.items()}
    training = parse_training(train, **options)
    assert training is not None
    append_update(builder, grads, training)
    return builder.document("update", next_values(builder))


def updated(train: str, **options: Any) -> Arrays:
    """The parameters after some steps."""
    written = document(train, **options)
    graph = load_graph(validate_document(GraphDocument, written, "update"), Mesh.parse("1"))
    arrays = parameters() | {e.id: np.zeros(e.type.shape) for e in graph.inputs if e.kind == "optimizer_state"}
    arrays |= {"step": np.array(1.0)} if "step" in arrays else {}
    following = {entry["id"]: entry["next"] for entry in written["inputs"] if "next" in entry}
    for grads in gradients():
        values = run_whole(graph, arrays | {f"{name}.grad": g for name, g in grads.items()}, np, precision="f64")
        arrays |= {name: values[value] for name, value in following.items()}
    return arrays


def under_torch(make: Any, clip: float | None = None) -> Arrays:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
    weights = {name: torch.nn.Parameter(torch.tensor(array)) for name, array in parameters().items()}
    optimizers = make(torch.optim, weights)
    for grads in gradients():
        for name, weight in weights.items():
            weight.grad = torch.tensor(grads[name])
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(weights.values(), clip)
        for optimizer in optimizers:
            optimizer.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


def all_of(name: str, **options: Any) -> Any:
    return lambda optim, weights: [getattr(optim, name)(weights.values(), **options)]


def muon_and_adamw(optim: Any, weights: Any) -> Any:
    matrices = [weight for weight in weights.values() if weight.ndim == 2]
    return [optim.Muon(matrices), optim.AdamW([weight for weight in weights.values() if weight.ndim != 2])]


SAME = [
    ("sgd", all_of("SGD", lr=RATE)),
    (f"sgd:{DECAY}", all_of("SGD", lr=0.01, weight_decay=0.1)),
    ("sgd-momentum", all_of("SGD", lr=RATE, momentum=0.9)),
    (f"sgd-momentum:{DECAY}", all_of("SGD", lr=0.01, momentum=0.9, weight_decay=0.1)),
    ("sgd-nesterov", all_of("SGD", lr=RATE, momentum=0.9, nesterov=True)),
    (f"sgd-nesterov:{DECAY}", all_of("SGD", lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1)),
    ("adam", all_of("Adam")),
    ("adamw", all_of("AdamW")),
    (f"adamw:{DECAY},beta2=0.95", all_of("AdamW", lr=0.01, weight_decay=0.1, betas=(0.9, 0.95))),
    ("adafactor", all_of("Adafactor", weight_decay=0.0)),
    (f"adafactor:{DECAY}", all_of("Adafactor", lr=0.01, weight_decay=0.1)),
]


def largest_error(got: Arrays, wanted: Arrays) -> float:
    """The largest error, as a share of the largest step that a parameter made."""
    before = parameters()
    return float(max(abs(got[name] - wanted[name]).max() / abs(wanted[name] - before[name]).max() for name in SHAPES))


@pytest.mark.frameworks("torch")
@pytest.mark.parametrize(("train", "make"), SAME, ids=[name for name, _ in SAME])
def test_an_update_is_that_of_torch(train: str, make: Any) -> None:
    assert largest_error(updated(train), under_torch(make)) < 1e-6


@pytest.mark.frameworks("torch")
def test_muon_equals_that_of_torch_except_for_rounding_in_its_iterations() -> None:
    """The graph runs in f64; torch's iterations are in bf16, with 8 bits."""
    got, wanted = updated("muon"), under_torch(muon_and_adamw)
    assert largest_error(got, wanted) < 0.05
    before = parameters()
    for name in ("vector", "stack"):
        assert abs(got[name] - wanted[name]).max() < 1e-6 * abs(wanted[name] - before[name]).max()


def test_muon_is_its_formula() -> None:
    wanted, buffers = parameters(), dict.fromkeys(("wide", "tall", "square"), 0.0)
    for grads in gradients():
        for name, buffer in buffers.items():
            buffers[name] = new = 0.95 * buffer + 0.05 * grads[name]
            x = 0.05 * grads[name] + 0.95 * new
            x /= np.linalg.norm(x)
            x = x.T if name == "tall" else x
            for _ in range(5):
                a = x @ x.T
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            x = x.T if name == "tall" else x
            wanted[name] = (1 - RATE * 0.1) * wanted[name] - RATE * max(1, x.shape[0] / x.shape[1]) ** 0.5 * x
    got = updated("muon")
    for name in buffers:
        assert np.allclose(got[name], wanted[name], rtol=1e-10, atol=1e-12)


def test_lion_is_its_formula() -> None:
    wanted, momenta = parameters(), dict.fromkeys(SHAPES, 0.0)
    for grads in gradients():
        for name, grad in grads.items():
            step = np.sign(0.9 * momenta[name] + 0.1 * grad)
            wanted[name] = wanted[name] * (1 - 0.01 * 0.1) - 0.01 * step
            momenta[name] = 0.99 * momenta[name] + 0.01 * grad
    got = updated(f"lion:{DECAY}")
    for name in SHAPES:
        assert np.allclose(got[name], wanted[name], rtol=1e-12, atol=1e-14)


@pytest.mark.frameworks("torch")
@pytest.mark.parametrize("norm", [0.5, 1e3])
def test_gradients_are_clipped_by_their_global_norm(norm: float) -> None:
    got = updated("sgd", clip_grad_norm=norm)
    assert largest_error(got, under_torch(all_of("SGD", lr=RATE), clip=norm)) < 1e-6


MASTERS = [
    ("sgd", "auto", False),
    ("sgd", "f32", True),
    ("sgd-momentum", "f32", True),
    ("adamw", "auto", True),
    ("adamw", "none", False),
    ("adafactor", "none", False),
    ("muon", "f32", True),
]


@pytest.mark.parametrize(("train", "master", "kept"), MASTERS)
def test_narrow_parameters_have_a_master_copy_where_it_is_requested(train: str, master: str, kept: bool) -> None:
    written = document(train, "bf16", master=master)
    states = {entry["name"]: entry for entry in written["inputs"] if entry["kind"] == "optimizer_state"}
    assert {entry["dtype"] for entry in states.values()} <= {"f32"}
    assert (
        {f"{name}.master" for name in SHAPES} <= set(states) if kept else not any("master" in name for name in states)
    )
    results = {
        f"{node['id']}:{k}" if k else node["id"]: o for node in written["nodes"] for k, o in enumerate(node["outputs"])
    }
    for entry in written["inputs"]:
        if "next" in entry:
            assert results[entry["next"]] == {"shape": entry["shape"], "dtype": entry["dtype"]}


@pytest.mark.parametrize("train", OPTIMIZERS)
def test_a_training_step_runs_sharded_as_it_does_whole(train: str) -> None:
    mesh = Mesh.parse("2x2")
    written = import_zoo("gpt2", train=train, clip_grad_norm=1.0, master="f32", **TINY)
    graph = load_graph(validate_document(GraphDocument, written, "gpt2"), mesh)
    whole = plan(graph, mesh, load_profile("h100-sxm"), request=Request(gap=0.2))
    assert whole.analysis is not None
    limit = int(0.7 * whole.analysis.peak_bytes)
    tight = plan(graph, mesh, load_profile("h100-sxm"), request=Request(limit, gap=0.2, time_limit_s=10))
    assert tight.analysis is not None
    assert tight.analysis.collective_bytes
    verdict = validate_plan(tight).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"


@pytest.mark.parametrize(("model", "precision"), [("gpt2", "f16-mixed"), ("mixtral-8x7b", "bf16-mixed")])
def test_mixed_precision_is_the_wide_step_computed_in_the_narrow_dtype(model: str, precision: Any) -> None:
    mesh, graphs = Mesh.parse("2"), []
    options: list[dict[str, Any]] = [{"precision": precision}, {"dtype": "f32"}]
    for option in options:
        written = import_zoo(model, train="adamw", **TINY, **option)
        graphs.append(load_graph(validate_document(GraphDocument, written, model), mesh))
    mixed, wide = graphs
    kept = ("parameter", "optimizer_state")
    assert {entry.type.dtype for entry in mixed.inputs if entry.kind in kept} == {"f32"}
    products = [op for op in mixed.ops if op.op in ("linear", "addmm") and op.phase == "forward"]
    assert {op.results[0].dtype for op in products} == {precision.partition("-")[0]}
    arrays = random_inputs(mixed, np, "f64", seed=0)
    # In f64 casts change nothing.
    got, wanted = (run_whole(graph, arrays, np, precision="f64") for graph in graphs)
    for name, other in zip(mixed.outputs, wide.outputs, strict=True):
        np.testing.assert_allclose(got[name], wanted[other], rtol=1e-9, atol=1e-12)
    verdict = validate_plan(plan(mixed, mesh, load_profile("h100-sxm"), request=Request(gap=0.2))).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bf16"}, r"precision \(got bf16; wanted one of bf16-mixed, f16-mixed"),
        ({"precision": "f16-mixed", "dtype": "f32"}, r"dtype beside precision \(got f32; wanted one of bf16, f16"),
    ],
)
def test_one_of_dtype_and_precision_says_what_ops_compute_in(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        import_zoo("gpt2", **options)


WRONG = [
    ("adagrad", {}, r"train \(got adagrad; wanted one of sgd, .*, muon\)"),
    ("adamw:rate=1", {}, "got rate; wanted one of lr, beta1, beta2, eps, weight_decay"),
    ("adamw:lr=fast", {}, "wanted name=number"),
    ("adamw:lr=nan", {}, "wanted a finite number"),
    ("sgd", {"clip_grad_norm": 0.0}, "wanted a number above 0"),
    ("sgd", {"master": "f64"}, "wanted one of auto, f32, none"),
    (None, {"clip_grad_norm": 1.0}, "clip_grad_norm: train"),
]


@pytest.mark.parametrize(("train", "options", "message"), WRONG)
def test_invalid_options_are_refused(train: str | None, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_training(train, **options)
