"""Reads the sizes of a model from a row: layers, widths, heads, experts. What it leaves out is derived or assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import InvalidRequest

LARGEST = 1 << 24
UNSTATED_VOCABULARY = 51200
HEAD_DIM = 128
WIDTH_OF_LAYERS = 128
"""Hidden width over layers where a row states parameters only, as in the models of GPT-3 and BLOOM."""
QUERY_RANK, KEY_RANK, ROTARY_DIM = 1536, 512, 64
"""Ranks of DeepSeek-V3's latent attention, and the rotary part of its heads (arXiv:2412.19437)."""
Matrix = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a transformer. Without experts, `experts`, `topk`, `moe_ffn`, `shared_experts`, `dense_layers` are 0.

    window, window_every  keys that every `window_every`-th layer sees; 0: all
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    is_gated: bool
    is_tied: bool
    is_latent: bool
    experts: int
    topk: int
    moe_ffn: int
    shared_experts: int
    dense_layers: int
    window: int
    window_every: int

    @property
    def expert_share(self) -> float:
        """Share of the layers that have experts."""
        return (self.layers - self.dense_layers) / self.layers if self.experts else 0.0

    def attention_matrices(self, tp: int) -> list[Matrix]:
        """Return result and operand width of the products of attention on one of `tp` devices."""
        if self.is_latent:
            query = self.heads * (self.head_dim + ROTARY_DIM) / tp
            keys = self.heads * 2 * self.head_dim / tp
            down = [(QUERY_RANK, self.hidden), (KEY_RANK + ROTARY_DIM, self.hidden)]
            return [*down, (query, QUERY_RANK), (keys, KEY_RANK), (self.hidden, self.heads * self.head_dim / tp)]
        width = (self.heads + 2 * max(self.kv_heads, tp)) * self.head_dim / tp
        return [(width, self.hidden), (self.hidden, self.heads * self.head_dim / tp)]

    def dense_matrices(self, tp: int) -> list[Matrix]:
        """Return result and operand width of the products of a feed-forward layer on one of `tp` devices."""
        return self._pair(self.ffn / tp)

    def expert_matrices(self) -> list[Matrix]:
        """Return result and operand width of the products of one expert."""
        return self._pair(self.moe_ffn) if self.experts else []

    def shared_matrices(self, tp: int) -> list[Matrix]:
        """Return result and operand width of the products of the shared experts on one of `tp` devices."""
        return self._pair(self.moe_ffn * self.shared_experts / tp) if self.shared_experts else []

    def _pair(self, width: float) -> list[Matrix]:
        return [((1 + self.is_gated) * width, self.hidden), (self.hidden, width)]


def read_shape(row: Mapping[str, Any]) -> tuple[ModelShape, tuple[str, ...]]:
    """Return the sizes of a row's model, and the fields that were assumed. Raises InvalidRequest."""
    raw = row.get("shape")
    if not isinstance(raw, Mapping):
        raise InvalidRequest("shape", got=raw, wanted="an object with layers, hidden, heads, ffn, vocab")
    vocab = read_size(raw, "vocab", UNSTATED_VOCABULARY)
    hidden, layers = _read_depth(raw, vocab)
    heads = read_size(raw, "heads", max(1, hidden // HEAD_DIM))
    experts, is_latent = read_size(raw, "experts", 0), raw.get("attention") == "mla"
    if raw.get("attention") not in (None, "mla"):
        raise InvalidRequest("shape.attention", got=raw["attention"], wanted="null or mla")
    shape = ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=read_size(raw, "kv_heads", heads),
        head_dim=read_size(raw, "head_dim", HEAD_DIM if is_latent else max(1, hidden // heads)),
        ffn=read_size(raw, "ffn", 4 * hidden),
        vocab=vocab,
        is_gated=bool(raw.get("gated")),
        is_tied=bool(raw.get("tied_embeddings", not raw.get("gated"))),
        is_latent=is_latent,
        experts=experts,
        topk=read_size(raw, "topk") if experts else 0,
        moe_ffn=read_size(raw, "moe_ffn") if experts else 0,
        shared_experts=read_size(raw, "shared_experts", 0),
        dense_layers=read_size(raw, "dense_layers", 0),
        window=read_size(raw, "window", 0),
        window_every=read_size(raw, "window_every", 1),
    )
    _check_shape(shape)
    asked = ("layers", "hidden", "heads", "vocab", *(() if experts else ("ffn",)))
    return shape, tuple(name for name in asked if not raw.get(name))


def _read_depth(raw: Mapping[str, Any], vocab: int) -> tuple[int, int]:
    """Return width and layers; parameters of GPT are 12 layers hidden**2 + vocab hidden."""
    params = raw.get("params")
    if isinstance(params, bool) or not isinstance(params, (int, float)) or not 1e6 <= params <= 1e15:
        return read_size(raw, "hidden"), read_size(raw, "layers")
    guess = max(1, round((params * WIDTH_OF_LAYERS / 12) ** (1 / 3) / HEAD_DIM)) * HEAD_DIM
    hidden = read_size(raw, "hidden", guess)
    return hidden, read_size(raw, "layers", max(1, round((params - vocab * hidden) / (12 * hidden**2))))


def _check_shape(shape: ModelShape) -> None:
    """Raise InvalidRequest where the sizes contradict each other."""
    for less, more in (("kv_heads", "heads"), ("topk", "experts"), ("dense_layers", "layers")):
        bound = getattr(shape, more)
        if getattr(shape, less) > bound:
            raise InvalidRequest(f"shape.{less}", got=getattr(shape, less), wanted=f"at most {more} = {bound}")


def read_size(row: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return a whole number of a row: 1 or more, or 0 where that is the default. Raises InvalidRequest."""
    value = default if row.get(name) is None else row[name]
    least = 0 if default == 0 else 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise InvalidRequest("number", where=name, got=value, wanted=f"a whole number from {least} to {LARGEST}")
    return value
