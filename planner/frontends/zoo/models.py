"""Sizes of the families, and the published models by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from planner.errors import InvalidRequest

MAX_SIZE = 1 << 24
MAX_LAYERS = 1000


@dataclass(frozen=True, slots=True)
class Model:
    """The sizes of a decoder-only transformer. Raises InvalidRequest for sizes that contradict each other.

    `heads` query heads share `kv_heads` key and value heads. A token visits `active` of `experts` feed-forward
    networks; 0 experts mean one network for all tokens. `positions` is the longest sequence that the model was
    published for, `source` the publication of its sizes.
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

    def __post_init__(self) -> None:
        for key, value in asdict(self).items():
            most = MAX_LAYERS if key == "layers" else MAX_SIZE
            if isinstance(value, int) and not (key in ("experts", "active") or 1 <= value <= most):
                raise InvalidRequest(key, got=value, wanted=f"1 to {most}")
        if self.width % self.heads or self.width // self.heads % 2:
            raise InvalidRequest("width", got=self.width, wanted=f"{self.heads} heads of an even size")
        if self.heads % self.kv_heads:
            raise InvalidRequest("heads", got=self.heads, wanted=f"a multiple of the {self.kv_heads} kv_heads")
        if self.family == "gpt" and self.heads != self.kv_heads:
            raise InvalidRequest("kv_heads", got=self.kv_heads, wanted=f"{self.heads}: heads of gpt share no keys")
        if self.family == "mixtral" and not 1 <= self.active <= self.experts <= MAX_SIZE:
            raise InvalidRequest("experts", got=self.experts, wanted=f"at least the {self.active} active, and one")
        if self.family != "mixtral" and self.experts:
            raise InvalidRequest("experts", got=self.experts, wanted=f"none: {self.family} has one feed-forward")

    @property
    def head(self) -> int:
        """The width of one head."""
        return self.width // self.heads


def _gpt(layers: int, width: int, heads: int, *, positions: int, source: str) -> Model:
    return Model("gpt", layers, width, heads, heads, 4 * width, 50257, positions, source=source)


GPT2 = "A. Radford et al., Language models are unsupervised multitask learners, 2019"
GPT3 = "T. Brown et al., Language models are few-shot learners, 2020"
LLAMA = "H. Touvron et al., LLaMA: open and efficient foundation language models, 2023"
LLAMA2 = "H. Touvron et al., Llama 2: open foundation and fine-tuned chat models, 2023"
LLAMA3 = "A. Grattafiori et al., The Llama 3 herd of models, 2024"
MIXTRAL = "A. Jiang et al., Mixtral of experts, 2024"

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
    }
)


def find_model(name: str, changes: Mapping[str, int | None]) -> Model:
    """Return a published model with the sizes in `changes` that are not None. Raises InvalidRequest.

    A changed number of heads changes kv_heads in the same ratio, unless that is given too.
    """
    if name not in MODELS:
        raise InvalidRequest("unknown model", got=name, wanted=f"one of {', '.join(MODELS)}")
    published = MODELS[name]
    sizes = asdict(published) | {key: value for key, value in changes.items() if value is not None}
    if changes.get("heads") and not changes.get("kv_heads"):
        sizes["kv_heads"] = max(1, sizes["heads"] * published.kv_heads // published.heads)
    return Model(**sizes)
