"""What a capacity question is about: graph documents, or published models in several sizes of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from planner.errors import InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.usecases.capacity_question import CapacityWorkload

MAX_HALVINGS = 6
MAX_HALVINGS_WITH_STAGES = 10
"""Stages take many micro-batches, which are small."""


def read_workload(document: Mapping[str, Any]) -> CapacityWorkload:
    """Return the workload of a graph, whose tokens are the elements of its first integer input, [batch, ...]."""
    shape = _token_shape(document)
    return CapacityWorkload(document, None if shape is None else math.prod(shape), shape[0] if shape else None)


def zoo_workloads(
    name: str, *, batches: Sequence[int], seqs: Sequence[int | None], **options: Any
) -> Iterator[CapacityWorkload]:
    """Yield a published model for every batch size and sequence length.

    `options` are the others of `planner.frontends.zoo.import_zoo`, which says what a sequence length of None means.
    """
    for batch, seq in product(batches, seqs):
        yield read_workload(import_zoo(name, batch=batch, seq=seq, **options))


def list_pass_batches(global_batch: int, halvings: int = MAX_HALVINGS) -> list[int]:
    """Return the micro-batches to try for an update on `global_batch` sequences: it, a half, a quarter, ..."""
    if global_batch < 1:
        raise InvalidRequest("global batch", got=global_batch, wanted="1 sequence or more")
    counts = (1 << k for k in range(halvings + 1))
    return [global_batch // parts for parts in counts if global_batch % parts == 0]


def _token_shape(document: Mapping[str, Any]) -> Sequence[int] | None:
    whole = (each for each in document["inputs"] if each["kind"] == "input" and each["dtype"] in ("i32", "i64"))
    return next((each["shape"] for each in whole), None)
