"""Model families written as graph documents, without any framework.

models         sizes of the families; the published models by name
model_builder  a document while it grows
layers         norms, projections, gated feed-forward networks; gates has their activations
attention      attention with shared keys, and latent attention
experts        feed-forward networks of which a token visits a few
families       the forward passes
backward_ops   the backward of every op they use
training       loss, backward pass and optimizer update, appended to a forward pass
update         the update: gradients clipped, master copies, next values
optimizers     the table of optimizers; parameter_updates and matrix_updates write their ops, in the arithmetic of
               fused_formula
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from planner.errors import InvalidRequest
from planner.frontends.graph_builder import DocumentValue
from planner.frontends.ring_attention import offer_rings
from planner.frontends.zoo.families import build_logits
from planner.frontends.zoo.model_builder import KeyValueCache, ModelBuilder
from planner.frontends.zoo.models import MAX_SIZE, MODELS, Model, find_model
from planner.frontends.zoo.optimizers import OPTIMIZERS
from planner.frontends.zoo.training import append_training_step
from planner.frontends.zoo.update import MasterMode, parse_training

__all__ = ["FLOATS", "MODELS", "OPTIMIZERS", "Precision", "import_zoo"]

FLOATS = ("bf16", "f16", "f32", "f64")
Precision = Literal["bf16-mixed", "f16-mixed"]
SEQUENCE = 2048


def import_zoo(
    name: str,
    *,
    batch: int = 8,
    seq: int | None = None,
    dtype: str = "bf16",
    precision: Precision | None = None,
    train: str | None = None,
    clip_grad_norm: float | None = None,
    master: MasterMode = "auto",
    capacity: float = 1.0,
    prefill: bool = False,
    decode: bool = False,
    ring_attention: bool = False,
    **sizes: int | None,
) -> dict[str, Any]:
    """Return the graph document of a published model (a key of MODELS).

    `seq` defaults to 2048 or to the longest sequence that the model was published for, whichever is less. `dtype` is
    that of parameters and activations. With `precision` parameters are stored in f32 and cast to bf16 or f16 before
    their first use; their gradients are cast back, and `dtype` must be left out or be the narrow one. `train`
    names the optimizer of a training step on `input_ids` and `labels`, a key of OPTIMIZERS such as `adamw`, with
    hyperparameters as in `adamw:lr=3e-4`; None means a forward pass. `clip_grad_norm` and `master` are those of
    `planner.frontends.zoo.update.Training`. `capacity` is how many times its even share of the tokens an expert may
    take. `sizes` overrides fields of `planner.frontends.zoo.models.Model`, such as `layers`.

    With `prefill` the outputs are the logits of the last token and the keys and values of every layer. With `decode`
    the graph computes one token for each sequence: its state is a cache of the keys and values of `seq` earlier tokens
    and its `length`, its outputs are the logits, the next length, and the new key and value of every layer, which are
    to be written into the cache.

    With `ring_attention` blocks of keys and values may pass round the devices that split a sequence.

    Raises InvalidRequest for a name, an option or sizes that do not exist or contradict each other.
    """
    shape = find_model(name, sizes)
    seq = min(SEQUENCE, shape.positions) if seq is None else seq
    computed, stored = _choose_dtypes(dtype, precision)
    training = parse_training(train, clip_grad_norm, master)
    for what, size in (("batch", batch), ("seq", seq)):
        if not 1 <= size <= MAX_SIZE:
            raise InvalidRequest(what, got=size, wanted=f"1 to {MAX_SIZE}")
    if not 0 < capacity <= MAX_SIZE:
        raise InvalidRequest("capacity", got=capacity, wanted="a number above 0, such as 1.25")
    if sum((prefill, decode, training is not None)) > 1:
        raise InvalidRequest("kinds of graph", got="several", wanted="one of prefill, decode and train")
    finish = offer_rings if ring_attention else dict
    builder = ModelBuilder(computed, parameter_dtype=stored)
    ids = builder.input("input_ids", [batch, 1 if decode else seq], "input", dtype="i64")
    if prefill or decode:
        outputs = _infer(builder, shape, ids, tokens=seq if decode else 0, capacity=capacity)
        return finish(builder.document(name, outputs))
    logits = build_logits(builder, shape, ids, capacity=capacity)
    outputs = [logits]
    if training is not None:
        outputs = append_training_step(
            builder, logits, builder.input("labels", [batch, seq], "input", dtype="i64"), training=training
        )
    return finish(builder.document(name, outputs))


def _choose_dtypes(dtype: str, precision: Precision | None) -> tuple[str, str]:
    """Return the dtype that ops compute in, and that of stored parameters. Raises InvalidRequest."""
    _check("dtype", dtype, FLOATS)
    if precision is None:
        return dtype, dtype
    _check("precision", precision, get_args(Precision))
    narrow = precision.partition("-")[0]
    _check("dtype beside precision", dtype, ("bf16", narrow))
    return narrow, "f32"


def _infer(
    builder: ModelBuilder, model: Model, ids: DocumentValue, *, tokens: int, capacity: float
) -> list[DocumentValue]:
    """Build logits and keys and values to keep; `tokens`: how many earlier ones there are. Return the outputs."""
    length = builder.input("length", [], "buffer", dtype="i64") if tokens else None
    builder.cache = KeyValueCache(tokens, length)
    logits = build_logits(builder, model, ids, capacity=capacity)
    if length is not None:
        builder.next[length.id] = builder.emit("add", [length], scalar=1)
    return [logits, *builder.next.values(), *builder.cache.written]


def _check(what: str, got: str | None, known: tuple[str | None, ...]) -> None:
    if got not in known:
        raise InvalidRequest(what, got=got, wanted=f"one of {', '.join(filter(None, known))}")
