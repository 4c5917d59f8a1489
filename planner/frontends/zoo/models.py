"""Sizes of the families, and the published models by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from planner.errors import InvalidRequest

MAX_SIZE = 1 << 24
MAX_LAYERS = 1000
ROUTING_GROUP = 64


@dataclass(frozen=True, slots=True)
class Style:
    """The parts of a family.

    has_experts     whether feed-forward networks may be experts
    has_head_norms  whether queries and keys are normalized by head
    has_post_norms  whether the results of attention and feed-forward networks are normalized too
    has_sinks       whether every query head has a sink (`planner.ops.attention`)
    has_biases      whether attention's projections, the router and the experts add biases
    is_tied         whether the head is the embedding
    scales_words    whether embeddings are multiplied by the root of the width
    turns_locally   whether layers of local attention have angles of their own
    gate            activation of feed-forward networks (`planner.frontends.zoo.gates`)
    """

    has_experts: bool = False
    has_head_norms: bool = False
    has_post_norms: bool = False
    has_sinks: bool = False
    has_biases: bool = False
    is_tied: bool = False
    scales_words: bool = False
    turns_locally: bool = False
    gate: str = "silu"


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "gpt": Style(is_tied=True),
        "llama": Style(),
        "mixtral": Style(has_experts=True),
        "qwen3": Style(has_head_norms=True),
        "qwen3-moe": Style(has_experts=True, has_head_norms=True),
        "gpt-oss": Style(has_experts=True, has_sinks=True, has_biases=True, gate="clamped"),
        "deepseek": Style(has_experts=True),
        "gemma3": Style(
            has_head_norms=True, has_post_norms=True, is_tied=True, scales_words=True, turns_locally=True, gate="gelu"
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Model:
    """The sizes of a decoder-only transformer. Raises InvalidRequest for sizes that contradict each other.

    `heads` query heads share `kv_heads` key and value heads. A token visits `active` of `experts` feed-forward
    networks; 0 experts mean one network for all tokens. `positions` is the longest sequence that the model was
    published for, `source` the publication of its sizes. A field with the default 0 is a part that the model lacks.

    head_width           width of a head; 0: width / heads
    window, global_every a layer attends to the last `window` keys, but each `global_every`-th one to all
    dense_layers         first layers, which have no experts
    expert_width         hidden width of an expert; 0: feed_forward
    shared_experts       experts that every token visits
    expert_groups, active_groups   a token's experts are in `active_groups` of so many groups; 0: anywhere
    expert_scale         factor of the experts' sum
    routing_group        tokens in a row that compete for an expert's slots; 0: those of a sequence
    query_rank, kv_rank, turned_width   ranks of latent queries, and of keys and values, and the width of the part of a
                         head that is turned by its position, beside `head_width`; 0: attention is not latent
    query_scalar         scores are divided by its root; 0: the width of a query
    """

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    experts: int = 0
    active: int = 0
    eps: float = 1e-5
    source: str = ""
    head_width: int = 0
    window: int = 0
    global_every: int = 0
    dense_layers: int = 0
    expert_width: int = 0
    shared_experts: int = 0
    expert_groups: int = 0
    active_groups: int = 0
    expert_scale: float = 1.0
    routing_group: int = 0
    query_rank: int = 0
    kv_rank: int = 0
    turned_width: int = 0
    query_scalar: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            size, most = getattr(self, field.name), MAX_LAYERS if field.name == "layers" else MAX_SIZE
            if isinstance(size, int) and not int(field.default != 0) <= size <= most:
                raise InvalidRequest(field.name, got=size, wanted=f"{int(field.default != 0)} to {most}")
        if not self.head_width and self.width % self.heads:
            raise InvalidRequest("width", got=self.width, wanted=f"{self.heads} heads of an even size")
        if self.rotated % 2:
            raise InvalidRequest("width", got=self.width, wanted=f"{self.heads} heads of an even size")
        if self.heads % self.kv_heads:
            raise InvalidRequest("heads", got=self.heads, wanted=f"a multiple of the {self.kv_heads} kv_heads")
        if (self.family == "gpt" or self.kv_rank) and self.heads != self.kv_heads:
            raise InvalidRequest(
                "kv_heads", got=self.kv_heads, wanted=f"{self.heads}: heads of {self.family} share no keys"
            )
        self._check_experts()

    def _check_experts(self) -> None:
        if self.style.has_experts and not 1 <= self.active <= self.experts:
            raise InvalidRequest("experts", got=self.experts, wanted=f"at least the {self.active} active, and one")
        if not self.style.has_experts and self.experts:
            raise InvalidRequest("experts", got=self.experts, wanted=f"none: {self.family} has one feed-forward")
        groups = self.expert_groups
        if groups and (self.experts % groups or self.experts // groups * self.active_groups < self.active):
            wanted = f"{groups} groups of equal size, {self.active_groups} of them with the {self.active} active"
            raise InvalidRequest("experts", got=self.experts, wanted=wanted)

    @property
    def style(self) -> Style:
        return STYLES[self.family]

    @property
    def head(self) -> int:
        """The width of one head."""
        return self.head_width or self.width // self.heads

    @property
    def rotated(self) -> int:
        """The width of the part of a head that is turned by its position."""
        return self.turned_width or self.head

    def has_experts(self, layer: int) -> bool:
        return bool(self.experts) and layer >= self.dense_layers

    def window_of(self, layer: int) -> int:
        """Return how many keys a query of a layer attends to; 0: all."""
        return self.window if self.global_every and (layer + 1) % self.global_every else 0


def _gpt(layers: int, width: int, heads: int, *, positions: int, source: str) -> Model:
    return Model("gpt", layers, width, heads, heads, 4 * width, 50257, positions, source=source)


def _qwen3(layers: int, width: int, heads: int, *, feed_forward: int) -> Model:
    return Model("qwen3", layers, width, heads, 8, feed_forward, 151936, 40960, eps=1e-6, source=QWEN3, head_width=128)


def _qwen3_moe(layers: int, width: int, heads: int, *, feed_forward: int) -> Model:
    sizes = layers, width, heads, 4, feed_forward, 151936, 40960, 128, 8
    return Model("qwen3-moe", *sizes, eps=1e-6, source=QWEN3, head_width=128, routing_group=ROUTING_GROUP)


def _gpt_oss(layers: int, experts: int) -> Model:
    sizes = layers, 2880, 64, 8, 2880, 201088, 131072, experts, 4
    local = {"window": 128, "global_every": 2}
    return Model("gpt-oss", *sizes, source=GPT_OSS, head_width=64, routing_group=ROUTING_GROUP, **local)


def _gemma3(layers: int, width: int, heads: int, *, feed_forward: int, head_width: int, query_scalar: int) -> Model:
    return Model(
        "gemma3",
        layers,
        width,
        heads,
        heads // 2,
        feed_forward,
        262208,
        131072,
        eps=1e-6,
        source=GEMMA3,
        head_width=head_width,
        window=1024,
        global_every=6,
        query_scalar=query_scalar,
    )


GPT2 = "A. Radford et al., Language models are unsupervised multitask learners, 2019"
GPT3 = "T. Brown et al., Language models are few-shot learners, 2020"
LLAMA = "H. Touvron et al., LLaMA: open and efficient foundation language models, 2023"
LLAMA2 = "H. Touvron et al., Llama 2: open foundation and fine-tuned chat models, 2023"
LLAMA3 = "A. Grattafiori et al., The Llama 3 herd of models, 2024"
MIXTRAL = "A. Jiang et al., Mixtral of experts, 2024"
QWEN3 = "Qwen team, Qwen3 technical report, 2025 (arXiv:2505.09388), and config.json of the checkpoints Qwen/Qwen3-*"
GPT_OSS = (
    "OpenAI, gpt-oss-120b and gpt-oss-20b model card, 2025 (arXiv:2508.10925), and config.json of openai/gpt-oss-*"
)
DEEPSEEK = (
    "DeepSeek-AI, DeepSeek-V3 technical report, 2024 (arXiv:2412.19437), and config.json of deepseek-ai/DeepSeek-V3; "
    "without the multi-token prediction module"
)
GEMMA3 = (
    "Gemma team, Gemma 3 technical report, 2025 (arXiv:2503.19786), and config.json of google/gemma-3-*; the text model"
)

MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "gpt2": _gpt(12, 768, 12, positions=1024, source=GPT2),
        "gpt2-medium": _gpt(24, 1024, 16, positions=1024, source=GPT2),
        "gpt2-large": _gpt(36, 1280, 20, positions=1024, source=GPT2),
        "gpt2-xl": _gpt(48, 1600, 25, positions=1024, source=GPT2),
        "gpt3-175b": _gpt(96, 12288, 96, positions=2048, source=GPT3),
        "llama-7b": Model("llama", 32, 4096, 32, 32, 11008, 32000, 2048, eps=1e-6, source=LLAMA),
        "llama-13b": Model("llama", 40, 5120, 40, 40, 13824, 32000, 2048, eps=1e-6, source=LLAMA),
        "llama-65b": Model("llama", 80, 8192, 64, 64, 22016, 32000, 2048, source=LLAMA),
        "llama-70b": Model("llama", 80, 8192, 64, 8, 28672, 32000, 4096, source=LLAMA2),
        "llama-3-8b": Model("llama", 32, 4096, 32, 8, 14336, 128256, 8192, source=LLAMA3),
        "llama-3-70b": Model("llama", 80, 8192, 64, 8, 28672, 128256, 8192, source=LLAMA3),
        "llama-3-405b": Model("llama", 126, 16384, 128, 8, 53248, 128256, 8192, source=LLAMA3),
        "mixtral-8x7b": Model("mixtral", 32, 4096, 32, 8, 14336, 32000, 32768, 8, 2, source=MIXTRAL),
        "qwen3-8b": _qwen3(36, 4096, 32, feed_forward=12288),
        "qwen3-32b": _qwen3(64, 5120, 64, feed_forward=25600),
        "qwen3-30b-a3b": _qwen3_moe(48, 2048, 32, feed_forward=768),
        "qwen3-235b-a22b": _qwen3_moe(94, 4096, 64, feed_forward=1536),
        "gpt-oss-20b": _gpt_oss(24, 32),
        "gpt-oss-120b": _gpt_oss(36, 128),
        "gemma-3-12b": _gemma3(48, 3840, 16, feed_forward=15360, head_width=256, query_scalar=256),
        "gemma-3-27b": _gemma3(62, 5376, 32, feed_forward=21504, head_width=128, query_scalar=168),
        "deepseek-v3": Model(
            "deepseek",
            61,
            7168,
            128,
            128,
            18432,
            129280,
            163840,
            256,
            8,
            eps=1e-6,
            source=DEEPSEEK,
            head_width=128,
            dense_layers=3,
            expert_width=2048,
            shared_experts=1,
            expert_groups=8,
            active_groups=4,
            expert_scale=2.5,
            routing_group=ROUTING_GROUP,
            query_rank=1536,
            kv_rank=512,
            turned_width=64,
        ),
    }
)


def find_model(name: str, changes: Mapping[str, int | None]) -> Model:
    """Return a published model with the sizes in `changes` that are not None. Raises InvalidRequest.

    A changed number of heads changes kv_heads in the same ratio, and a changed number of layers leaves one with
    experts, unless these are given too.
    """
    if name not in MODELS:
        raise InvalidRequest("unknown model", got=name, wanted=f"one of {', '.join(MODELS)}")
    published = MODELS[name]
    sizes: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    if "heads" in sizes and "kv_heads" not in sizes:
        sizes["kv_heads"] = max(1, sizes["heads"] * published.kv_heads // published.heads)
    if "layers" in sizes and "dense_layers" not in sizes:
        sizes["dense_layers"] = max(0, min(published.dense_layers, sizes["layers"] - 1))
    return replace(published, **sizes)
