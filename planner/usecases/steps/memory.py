"""Peak bytes of a training step on the device that holds most, from the row and the constants of its software.

states       weights, gradients (f32 copies where weights are narrow), optimizer states, over ZeRO's devices
activations  of every layer of a stage, for as many micro batches as the stage holds at once: its distance to
             the last stage (1F1B); recomputed layers keep their input, and one layer is whole at a time
logits       of the last stage
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.usecases.steps.kernels import ITEMSIZES
from planner.usecases.steps.rows import StepRow
from planner.usecases.steps.stacks import Stack
from planner.usecases.steps.work import F32, count_elements

STATE_BYTES = 12
"""The states are an f32 copy and two f32 moments (Rajbhandari et al., 2020)."""
SCORE_BYTES = 5
"""Scores, shares, mask and dropout of attention that is not fused, for each head and pair of tokens (Korthikanti et
al., 2022)."""


def count_peak_bytes(row: StepRow, stack: Stack) -> int:
    """Return the peak bytes of the first or the last stage."""
    peak = _count_peak_bytes(row, stack)
    is_free = "remat" in row.assumed and stack.recomputes_to_fit
    if is_free and peak > stack.usable * row.memory_bytes:
        peak = _count_peak_bytes(replace(row, remat="full"), stack)
    return int(peak)


def _count_peak_bytes(row: StepRow, stack: Stack) -> float:
    first, last = _split_layers(row, stack)
    stages = [(first, min(row.stages, row.micro_batches), row.stages == 1), (last, 1, True)]
    return stack.base_bytes + max(_stage_bytes(row, stack, *each) for each in stages)


def _split_layers(row: StepRow, stack: Stack) -> tuple[float, float]:
    """Return the layers of the first and of the last stage."""
    even = float(math.ceil(row.shape.layers / row.stages))
    if not stack.balances_head or row.stages == 1:
        return even, even
    dense, experts = count_elements(row)
    embedding = row.shape.vocab * row.shape.hidden / row.tp
    head = embedding / max(1.0, (dense + experts - embedding) / row.layers)  # in layers, by their parameters
    last = max(0.0, float(round((row.shape.layers + head) / row.stages - head)))
    return math.ceil((row.shape.layers - last) / (row.stages - 1)), last


def _stage_bytes(row: StepRow, stack: Stack, layers: float, held: float, has_head: bool) -> float:
    shape, dense = row.shape, sum(count_elements(row))
    embeddings = shape.vocab * shape.hidden / row.tp * (1 if row.stages > 1 or shape.is_tied else 2)
    elements = (dense - embeddings) / row.layers * layers + embeddings
    width = row.tokens * shape.hidden
    logits = row.tokens * shape.vocab / row.tp * (stack.logit_bytes if row.stages == 1 else stack.stage_logit_bytes)
    return (
        elements * _element_bytes(row, stack)
        + _activation_bytes(row, stack, layers=layers, held=held)
        + (logits if has_head else 0.0)
        + stack.work_bytes * width
    )


def _element_bytes(row: StepRow, stack: Stack) -> float:
    """Return the bytes of a parameter with its gradient and states on one device."""
    if row.dtype == "f32":
        return 8.0 + 8.0 / (row.state_devices if row.zero else row.fsdp)
    if row.fsdp > 1:
        return (F32 + STATE_BYTES) / row.fsdp
    return ITEMSIZES[row.dtype] + stack.gradient_bytes + STATE_BYTES / (row.state_devices * row.cp if row.zero else 1)


def _activation_bytes(row: StepRow, stack: Stack, *, layers: float, held: float) -> float:
    """Return the bytes of activations that a stage keeps for backward."""
    width = row.tokens * row.shape.hidden
    item = ITEMSIZES[row.dtype]
    unsplit = stack.unsplit_bytes if row.tp > 1 and row.stages == 1 else 0.0
    scores = SCORE_BYTES * row.shape.heads * row.tokens * row.seq / row.tp
    has_scores = not stack.fuses_attention or row.dtype == "f32"
    kept = width * (stack.activation_bytes * item / 2 / row.tp + unsplit)
    kept += scores if has_scores and row.remat == "none" else 0.0
    if row.remat != "full":
        return layers * held * kept
    inputs = width * item / (row.tp if row.is_sequence_parallel else 1)
    return layers * held * inputs + kept + (scores if has_scores else 0.0)
