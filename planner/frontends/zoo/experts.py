"""Feed-forward networks of which every token visits a few.

A layer of experts dispatches by capacity, as GShard does (D. Lepikhin et al., 2020): every expert takes at most
c = ceil(capacity * active * group / experts) tokens of each group, first choices before second ones, and drops the
rest. A group is a sequence, or `Model.routing_group` tokens of one in a row; of sequences of one token, it is of the
batch. All sizes are therefore static. The expert
is a dim like any other: splitting it is expert parallelism, and the all-to-all is the reshard between tokens split by
batch and tokens split by expert. The products of the experts cost as much as `active` of them, not all. The products
with the one-hot dispatch are counted as they are, 2 group / (3 hidden width of an expert) of the experts' own: groups
are small where experts are.

    slot[b,k,s,c] is choice k of token s the c-th token of its expert?      chosen[b,k,s,e] is it expert e's?
    dispatch[b,s,e,c] = sum_k chosen slot      combine[b,s,e,c] = sum_k weight chosen slot
    weight[b,k,s] = softmax over k of the chosen experts' scores

The scores are the router's logits l, and the experts those of the highest logits. With groups of experts (DeepSeek-V3
technical report, equations 12 to 16) the scores are log sigmoid(l), and so the weights sigmoid(l) over their sum; an
expert is chosen by sigmoid(l) + bias, among those of the groups whose two highest sum to the most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.fused_formula import emit_formula
from planner.frontends.zoo.gates import GATES
from planner.frontends.zoo.layers import gated_mlp, linear
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.models import Model
from planner.ir.graph import TensorType

PENALTY = 1e4
"""What is taken from the choice of an expert outside a token's groups."""


def experts(builder: ModelBuilder, x: DocumentValue, model: Model, *, capacity: float) -> DocumentValue:
    """Apply one network like `gated_mlp` per expert; each token visits `model.active` of them, and the shared ones."""
    sequence, width = x.shape[-2:]
    sequence = math.prod(x.shape[:-1]) if sequence == 1 else sequence
    group = math.gcd(sequence, model.routing_group) if model.routing_group else sequence
    grouped = builder.reshape(x, [math.prod(x.shape[:-1]) // group, group, width])
    slots = min(group, math.ceil(capacity * model.active * group / model.experts))
    dispatch, combine = _route(builder, grouped, model, slots=slots)
    shape = [grouped.shape[0], model.experts, slots, width]
    tokens = builder.emit("einsum", [dispatch, grouped], shape, equation="b s e c, b s d -> b e c d")
    expert_out = _expert_mlp(builder, tokens, model)
    mixed = builder.emit("einsum", [combine, expert_out], grouped.shape, equation="b s e c, b e c d -> b s d")
    mixed = builder.reshape(mixed, x.shape)
    if not model.shared_experts:
        return mixed
    hidden = model.shared_experts * (model.expert_width or model.feed_forward)
    shared = gated_mlp(builder, "mlp.shared_experts", x, model=model, hidden=hidden)
    return builder.emit("add", [mixed, shared])


def _expert_mlp(builder: ModelBuilder, tokens: DocumentValue, model: Model) -> DocumentValue:
    """Apply every expert's network to its tokens [batch, expert, slot, width]."""
    batch, count, slots, width = tokens.shape
    wide, has_biases = model.expert_width or model.feed_forward, model.style.has_biases
    weights = [builder.input(f"mlp.experts.{name}", [count, wide, width]) for name in ("gate_proj", "up_proj")]
    hidden = [batch, count, slots, wide]
    gate, up = (
        builder.emit("einsum", [tokens, weight], hidden, equation="b e c d, e f d -> b e c f") for weight in weights
    )
    if has_biases:
        gate, up = (_add_expert_bias(builder, each, name) for each, name in ((gate, "gate_proj"), (up, "up_proj")))
    active = GATES[model.style.gate](builder, (gate, up))
    down = builder.input("mlp.experts.down_proj", [count, width, wide])
    result = builder.emit("einsum", [active, down], tokens.shape, equation="b e c f, e d f -> b e c d")
    return _add_expert_bias(builder, result, "down_proj") if has_biases else result


def _add_expert_bias(builder: ModelBuilder, x: DocumentValue, name: str) -> DocumentValue:
    _, count, _, width = x.shape
    bias = builder.input(f"mlp.experts.{name}_bias", [count, width])
    return builder.emit("add", [x, builder.reshape(bias, [count, 1, width])])


def _route(builder: ModelBuilder, x: DocumentValue, model: Model, *, slots: int) -> tuple[DocumentValue, DocumentValue]:
    """Return dispatch and combine, [batch, sequence, expert, slot], for tokens x."""
    name = "mlp.router" if model.style.has_biases else "mlp.gate"
    scores = choice = linear(builder, name, x, width=model.experts, has_bias=model.style.has_biases)
    if model.expert_groups:
        shares = builder.emit("sigmoid", [scores])
        scores, choice = builder.emit("log", [shares]), _choose_in_groups(builder, shares, model)
    return route_tokens(builder, scores, model.active, slots=slots, choice=choice, scale=model.expert_scale)


def _choose_in_groups(builder: ModelBuilder, shares: DocumentValue, model: Model) -> DocumentValue:
    """Return by what experts are chosen, [batch, sequence, expert]."""
    bias = builder.input("mlp.gate.e_score_correction_bias", [model.experts], "buffer")
    groups = [*shares.shape[:-1], model.expert_groups]
    apart = [*groups, model.experts // model.expert_groups]
    choice = builder.reshape(builder.emit("add", [shares, bias]), apart)
    highest = top(builder, choice, min(2, apart[-1]))[0]
    best = top(builder, builder.emit("sum", [highest], groups, dims=[3]), model.active_groups)[1]
    hits = builder.cast(one_hot(builder, best, model.expert_groups), shares.dtype)
    inside = builder.reshape(builder.emit("sum", [hits], groups, dims=[2]), [*groups, 1])
    allowed = emit_formula(
        builder, [choice, inside], lambda each, kept: each + (kept - 1.0) * PENALTY, dtype=shares.dtype
    )
    return builder.reshape(allowed, shares.shape)


def top(builder: ModelBuilder, x: DocumentValue, count: int) -> list[DocumentValue]:
    """Return the highest values along the last dim, and their places."""
    shape = (*x.shape[:-1], count)
    types: Sequence[TensorType] = [TensorType(shape, x.dtype), TensorType(shape, "i64")]
    return builder.emit_all("topk", [x], types, attrs={"dim": len(shape) - 1})


def route_tokens(
    builder: ModelBuilder,
    scores: DocumentValue,
    active: int,
    *,
    slots: int,
    choice: DocumentValue | None = None,
    scale: float = 1.0,
) -> tuple[DocumentValue, DocumentValue]:
    """Return dispatch and combine, [batch, sequence, expert, slot], for router scores [batch, sequence, expert].

    A token visits the `active` experts with the highest `choice` (None: scores); its weights sum to `scale`.
    """
    batch, sequence, count = scores.shape
    places = top(builder, choice or scores, active)[1]
    places = builder.emit("transpose", [places], [batch, active, sequence], permutation=[0, 2, 1])
    hit = one_hot(builder, places, count)
    turn = builder.emit("reshape", [builder.cast(hit, "i64")], [batch, active * sequence, count])
    turns = builder.emit("multiply", [builder.emit("cumsum", [turn], dim=1), turn])
    mine = builder.emit("sum", [turns], turns.shape[:2], dims=[2])
    slot = builder.cast(one_hot(builder, builder.emit("reshape", [mine], places.shape), slots, start=1), scores.dtype)
    chosen = builder.cast(hit, scores.dtype)
    score = builder.emit("einsum", [scores, chosen], places.shape, equation="b s e, b k s e -> b k s")
    weight = builder.emit("softmax", [score], dim=1)
    if scale != 1.0:
        weight = builder.emit("multiply", [weight], scalar=scale)
    shape = [batch, sequence, count, slots]
    return (
        builder.emit("einsum", [chosen, slot], shape, equation="b k s e, b k s c -> b s e c"),
        builder.emit("einsum", [weight, chosen, slot], shape, equation="b k s, b k s e, b k s c -> b s e c"),
    )


def one_hot(builder: ModelBuilder, places: DocumentValue, count: int, *, start: int = 0) -> DocumentValue:
    """Return bool [..., count]: whether a place equals start, start + 1, ...; all false for a place beyond them."""
    every = builder.emit("arange", [], (count,), dtype=places.dtype, start=start)
    apart = builder.emit("reshape", [places], [*places.shape, 1])
    return builder.emit("equal", [apart, every], [*places.shape, count], dtype="bool")
