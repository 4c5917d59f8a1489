"""The zoo's models compute what the published models compute: logits, loss, gradients, updated parameters.

The oracle is transformers on a small configuration with random weights in f64, differentiated by torch's autograd
and updated by torch's optimizers. The experts' capacity is large enough that none is full, because those models drop no
token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.frontends.zoo.optimizers import RATE
from planner.ir.mesh import Mesh
from planner.run.executor import run_whole

torch = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch", "transformers")

BATCH, SEQ, VOCABULARY = 3, 10, 37
LLAMA = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 20}
SHARED = {"num_attention_heads": 4, "num_key_value_heads": 2}
SIZES = {"vocabulary": VOCABULARY, "layers": 2, "width": 16, "heads": 4}

CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "gpt2": (
        "gpt2",
        {"vocab_size": VOCABULARY, "n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 12},
        "gpt2",
        SIZES | {"feed_forward": 64, "positions": 12},
    ),
    "llama": (
        "llama",
        LLAMA | {"num_attention_heads": 4, "rms_norm_eps": 1e-6},
        "llama-7b",
        SIZES | {"feed_forward": 20},
    ),
    "llama with shared keys": (
        "llama",
        LLAMA | SHARED | {"rms_norm_eps": 1e-5},
        "llama-70b",
        SIZES | {"feed_forward": 20, "kv_heads": 2},
    ),
    "mixtral": (
        "mixtral",
        LLAMA | SHARED | {"num_local_experts": 4, "num_experts_per_tok": 2},
        "mixtral-8x7b",
        SIZES | {"feed_forward": 20, "kv_heads": 2, "experts": 4, "capacity": 2.0},
    ),
}


def published(kind: str, config: dict[str, Any]) -> Any:
    """The model with random weights in f64, no dropout."""
    torch.manual_seed(0)
    made = transformers.CONFIG_MAPPING[kind](**config, attn_implementation="eager", attention_dropout=0.0)
    made._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def arrays_of(model: Any, ids: Any, labels: Any) -> dict[str, Any]:
    """The graph's inputs by name; the experts' fused gate and up products as two."""
    found: dict[str, Any] = {"input_ids": ids.numpy(), "labels": labels.numpy()}
    for name, weight in model.named_parameters():
        found |= by_name(name, weight.detach().numpy().copy())
    head = model.config.hidden_size // model.config.num_attention_heads
    base = (getattr(model.config, "rope_parameters", None) or {"rope_theta": 1.0})["rope_theta"]
    angles = np.arange(SEQ)[:, None] * base ** (-2 * np.arange(head // 2) / head)
    return found | {"model.rotary_emb.cos": np.cos(angles), "model.rotary_emb.sin": np.sin(angles)}


def by_name(name: str, array: Any) -> dict[str, Any]:
    if not name.endswith("gate_up_proj"):
        return {name: array}
    gate, up = np.split(array, 2, axis=1)
    return {name.replace("gate_up_proj", "gate_proj"): gate, name.replace("gate_up_proj", "up_proj"): up}


def outputs_of(document: dict[str, Any], arrays: dict[str, Any]) -> list[Any]:
    graph = load_graph(GraphDocument.model_validate(document), Mesh.parse("1"))
    values = run_whole(graph, {entry.id: arrays[entry.id] for entry in graph.inputs}, np, precision="f64")
    return [values[name] for name in graph.outputs]


def example(case: str) -> tuple[Any, Any, Any, dict[str, Any], str, dict[str, Any]]:
    kind, config, name, sizes = CASES[case]
    model = published(kind, config)
    ids, labels = torch.randint(0, VOCABULARY, (2, BATCH, SEQ)).unbind()
    return model, ids, labels, arrays_of(model, ids, labels), name, sizes | {"batch": BATCH, "seq": SEQ, "dtype": "f64"}


def loss_of(model: Any, ids: Any, labels: Any) -> Any:
    logits = model(input_ids=ids, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def agree(got: Any, wanted: Any) -> bool:
    """As closely as transformers allow, who compute rotary angles and expert weights in f32."""
    return bool(np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("case", CASES)
def test_the_logits_are_those_of_the_published_model(case: str) -> None:
    model, ids, _, arrays, name, sizes = example(case)
    (got,) = outputs_of(import_zoo(name, **sizes), arrays)
    assert agree(got, model(input_ids=ids, use_cache=False).logits.detach().numpy())


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_autograd(case: str) -> None:
    model, ids, labels, arrays, name, sizes = example(case)
    document = import_zoo(name, train="sgd", **sizes)
    loss, *updated = outputs_of(document, arrays)
    wanted = loss_of(model, ids, labels)
    wanted.backward()
    assert agree(loss, wanted.item())
    gradients = {key: part for n, p in model.named_parameters() for key, part in by_name(n, p.grad.numpy()).items()}
    names = [entry["id"] for entry in document["inputs"] if entry["kind"] == "parameter"]
    assert set(names) == set(gradients)
    for key, after in zip(names, updated, strict=True):
        assert agree((arrays[key] - after) / RATE, gradients[key]), key


@pytest.mark.parametrize("case", ["gpt2", "llama with shared keys"])
def test_a_step_of_adam_is_that_of_torch(case: str) -> None:
    model, ids, labels, arrays, name, sizes = example(case)
    document = import_zoo(name, train="adam", **sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for key, weight in model.named_parameters():
        first, second = 1e-2 * torch.randn_like(weight), 1e-3 * torch.rand_like(weight)
        optimizer.state[weight] = {"step": torch.tensor(3.0), "exp_avg": first, "exp_avg_sq": second}
        arrays |= {f"{key}.exp_avg": first.numpy().copy(), f"{key}.exp_avg_sq": second.numpy().copy()}
    arrays["step"] = np.array(4.0)
    before = dict(arrays)
    loss_of(model, ids, labels).backward()
    optimizer.step()
    _, *updated = outputs_of(document, arrays)
    states = [entry["id"] for entry in document["inputs"] if entry["kind"] in ("parameter", "optimizer_state")]
    for key, after in zip(states, updated, strict=True):
        if key == "step":
            assert after == 5
            continue
        parameter, _, state = key.rpartition(".") if "exp_avg" in key else (key, "", "")
        weight = model.get_parameter(parameter)
        wanted = optimizer.state[weight][state] if state else weight.detach()
        moved = float(np.abs(wanted.numpy() - before[key]).max())
        assert np.abs(after - wanted.numpy()).max() <= 1e-5 * moved, key
