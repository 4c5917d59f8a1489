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

FEW = {"experts": 4, "active": 2}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}

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
    "qwen3": (
        "qwen3",
        LLAMA | SHARED | {"head_dim": 8, "tie_word_embeddings": False},
        "qwen3-8b",
        SIZES | {"feed_forward": 20, "kv_heads": 2, "head_width": 8},
    ),
    "qwen3 with experts, routed in groups of tokens": (
        "qwen3_moe",
        LLAMA
        | SHARED
        | {"head_dim": 8, "tie_word_embeddings": False, "moe_intermediate_size": 20, "norm_topk_prob": True}
        | {"num_local_experts": 4, "num_experts_per_tok": 2},
        "qwen3-30b-a3b",
        SIZES | {"feed_forward": 20, "kv_heads": 2, "head_width": 8, "capacity": 2.0, "routing_group": 4} | FEW,
    ),
    "gpt-oss": (
        "gpt_oss",
        LLAMA | SHARED | {"head_dim": 8, "sliding_window": 3, "num_local_experts": 4, "num_experts_per_tok": 2} | ROPE,
        "gpt-oss-20b",
        SIZES | {"feed_forward": 20, "kv_heads": 2, "head_width": 8, "window": 3, "capacity": 2.0} | FEW,
    ),
    "gemma 3": (
        "gemma3_text",
        LLAMA
        | SHARED
        | {"head_dim": 8, "sliding_window": 3, "num_hidden_layers": 6, "query_pre_attn_scalar": 5}
        | {"pad_token_id": None},
        "gemma-3-27b",
        SIZES | {"layers": 6, "feed_forward": 20, "kv_heads": 2, "head_width": 8, "window": 3, "query_scalar": 5},
    ),
    "deepseek": (
        "deepseek_v3",
        LLAMA
        | {"num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 6, "kv_lora_rank": 5}
        | {"qk_nope_head_dim": 8, "v_head_dim": 8, "qk_rope_head_dim": 4, "moe_intermediate_size": 7}
        | {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1}
        | {"rope_interleave": False, "num_mtp_layers": 0},
        "deepseek-v3",
        SIZES
        | {"feed_forward": 20, "head_width": 8, "query_rank": 6, "kv_rank": 5, "turned_width": 4, "expert_width": 7}
        | {"experts": 8, "active": 3, "expert_groups": 4, "active_groups": 2, "capacity": 3.0},
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
    """The graph's inputs by name; the experts' fused gate and up products as two; 1 is added to Gemma's norms."""
    found: dict[str, Any] = {"input_ids": ids.numpy(), "labels": labels.numpy()}
    plus_one = model.config.model_type == "gemma3_text"
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        array = weight.detach().numpy().copy()
        array = array + 1 if plus_one and "norm" in name else array
        found |= by_name(name, array, is_interleaved=is_interleaved(model))
    return found | angles_of(model.config)


def is_interleaved(model: Any) -> bool:
    return bool(model.config.model_type == "gpt_oss")


def angles_of(config: Any) -> dict[str, Any]:
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": 1.0}
    bases = {"rotary_emb": rope}
    if "full_attention" in rope:
        bases = {"rotary_emb": rope["full_attention"], "rotary_emb_local": rope["sliding_attention"]}
    found: dict[str, Any] = {}
    for name, each in bases.items():
        angles = np.arange(SEQ)[:, None] * each["rope_theta"] ** (-2 * np.arange(head // 2) / head)
        found |= {f"model.{name}.cos": np.cos(angles), f"model.{name}.sin": np.sin(angles)}
    return found


def by_name(name: str, array: Any, *, is_interleaved: bool = False) -> dict[str, Any]:
    """A weight by its names in the zoo's documents, in which gates and what they let through are apart.

    `is_interleaved`: they alternate in the last dim, as in gpt-oss, whose experts' weights are transposed too.
    """
    if is_interleaved and ".experts." in name:
        parts = {name: array}
        if "gate_up_proj" in name:
            parts = {name.replace("gate_up", part): array[..., k::2] for k, part in enumerate(("gate", "up"))}
        return {key: part if key.endswith("bias") else part.swapaxes(1, 2) for key, part in parts.items()}
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


def logits_of(model: Any, ids: Any) -> Any:
    """Return the model's logits, with all that its code computes in f32 computed in f64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        return model(input_ids=ids, use_cache=False).logits


def loss_of(model: Any, ids: Any, labels: Any) -> Any:
    logits = logits_of(model, ids)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def agree(got: Any, wanted: Any) -> bool:
    """As closely as transformers allow, who compute rotary angles and expert weights in f32."""
    return bool(np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("case", CASES)
def test_the_logits_are_those_of_the_published_model(case: str) -> None:
    model, ids, _, arrays, name, sizes = example(case)
    (got,) = outputs_of(import_zoo(name, **sizes), arrays)
    assert agree(got, logits_of(model, ids).detach().numpy())


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_autograd(case: str) -> None:
    model, ids, labels, arrays, zoo_name, sizes = example(case)
    document = import_zoo(zoo_name, train="sgd", **sizes)
    loss, *updated = outputs_of(document, arrays)
    wanted = loss_of(model, ids, labels)
    wanted.backward()
    assert agree(loss, wanted.item())
    gradients: dict[str, Any] = {}
    for name, weight in model.named_parameters():
        gradients |= by_name(name, weight.grad.numpy(), is_interleaved=is_interleaved(model))
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
