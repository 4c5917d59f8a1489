"""Model families written as graph documents, without any framework.

models       sizes of the families; the published models by name
writer       a document while it grows
layers       norms, attention, feed-forward networks, experts
families     the forward passes
derivatives  the backward of every op they use
training     loss, backward pass and optimizer update, appended to a forward pass
"""

from __future__ import annotations

from typing import Any

from planner.errors import InvalidRequest
from planner.frontends.zoo.families import FAMILIES
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.models import MAX_SIZE, MODELS, find_model
from planner.frontends.zoo.training import OPTIMIZERS, append_training_step

__all__ = ["FLOATS", "MODELS", "OPTIMIZERS", "import_zoo"]

FLOATS = ("bf16", "f16", "f32", "f64")
SEQUENCE = 2048


def import_zoo(
    name: str,
    *,
    batch: int = 8,
    seq: int | None = None,
    dtype: str = "bf16",
    train: str | None = None,
    capacity: float = 1.0,
    **sizes: int | None,
) -> dict[str, Any]:
    """The graph document of a published model (a key of MODELS), or of one of its family with other `sizes`.

    `seq` is 2048, or the most that the model was published for, where nothing else is said; `train` the optimizer
    (sgd or adam) of a training step on `input_ids` and `labels`, None for inference; `capacity` how many times its
    even share of the tokens an expert may take; `sizes` are fields of `planner.frontends.zoo.models.Model`.

    Raises InvalidRequest for a name, an option or sizes that do not exist or contradict each other.
    """
    shape = find_model(name, sizes)
    seq = min(SEQUENCE, shape.positions) if seq is None else seq
    _check("dtype", dtype, FLOATS)
    _check("train", train, (None, *OPTIMIZERS))
    for what, size in (("batch", batch), ("seq", seq)):
        if not 1 <= size <= MAX_SIZE:
            raise InvalidRequest(what, got=size, wanted=f"1 to {MAX_SIZE}")
    if not 0 < capacity <= MAX_SIZE:
        raise InvalidRequest("capacity", got=capacity, wanted="a number above 0, such as 1.25")
    w = ModelBuilder(dtype)
    ids = w.input("input_ids", [batch, seq], "input", dtype="i64")
    logits = FAMILIES[shape.family](w, shape, ids, capacity)
    outputs = [logits]
    if train is not None:
        outputs = append_training_step(
            w, logits, w.input("labels", [batch, seq], "input", dtype="i64"), optimizer=train
        )
    return w.document(name, outputs)


def _check(what: str, got: str | None, known: tuple[str | None, ...]) -> None:
    if got not in known:
        raise InvalidRequest(what, got=got, wanted=f"one of {', '.join(filter(None, known))}")
