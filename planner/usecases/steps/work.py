"""What a training step has to do on one device: seconds of kernels, collectives and memory passes at their own rates.

The software's constants (`planner.usecases.steps.stacks`) turn this work into a step. All figures are of one micro
batch and one layer, or of the parameters that one device holds, and may be arrays over rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from planner.ir.collectives import Kind
from planner.usecases.steps.kernels import ITEMSIZES, attention_s, linear_s
from planner.usecases.steps.rows import StepRow
from planner.usecases.steps.traffic import group_s, pair_s, send_s

F32, BF16 = 4, 2
UNSTATED_NODE = 8


class StepWork(NamedTuple):
    """Work of a step; see the module. Times are in seconds, `forward` and `backward` of one layer."""

    forward_s: Any
    backward_s: Any
    attention_s: Any
    scores_forward_s: Any
    scores_backward_s: Any
    score_pass_s: Any
    pass_s: Any
    head_s: Any
    logit_pass_s: Any
    tp_s: Any
    expert_s: Any
    fsdp_s: Any
    send_s: Any
    reduce_s: Any
    gather_s: Any
    update_byte_s: Any
    nodes: Any
    tp_nodes: Any


def count_work(row: StepRow) -> StepWork:
    """Return the work of a step."""
    hardware, tp, size = row.hardware, row.tp, row.tokens * row.shape.hidden * ITEMSIZES[row.dtype]
    wide = "bf16" if row.dtype == "fp8" else row.dtype
    bandwidth = hardware.memory_bandwidth
    forward, backward = _layer_s(row, wide)
    scores = _scores_s(row, wide)
    dense, experts = count_elements(row)
    node = hardware.tiers[0].devices or UNSTATED_NODE
    split = 1 / tp if row.is_sequence_parallel else (1 + 1 / tp) / 2
    pair = pair_s(hardware, tp, stride=1, size=size)
    reduced = group_s(hardware, Kind.ALL_REDUCE, tp, stride=1, size=size)
    logits = row.tokens * row.shape.vocab / tp
    stride = row.cp * row.data * tp
    return StepWork(
        forward_s=forward,
        backward_s=backward,
        attention_s=_attention_s(row, wide),
        scores_forward_s=scores[0],
        scores_backward_s=scores[1],
        score_pass_s=row.tokens * row.seq * row.shape.heads / tp * ITEMSIZES[wide] / bandwidth,
        pass_s=size * split / bandwidth,
        head_s=sum(linear_s(hardware, wide, row.tokens, matrices=[(row.shape.vocab / tp, row.shape.hidden)])),
        logit_pass_s=logits * F32 / bandwidth,
        tp_s=pair if row.is_sequence_parallel else reduced,
        expert_s=_expert_s(row),
        fsdp_s=_fsdp_s(row),
        send_s=send_s(hardware, row.stages, stride=stride, size=size / (tp if row.is_sequence_parallel else 1)),
        reduce_s=_reduce_s(row, dense, experts),
        gather_s=_gather_s(row, dense, experts),
        update_byte_s=(dense + experts) / _count_shares(row) / bandwidth,
        nodes=max(1.0, row.data * row.cp * tp / node),
        tp_nodes=max(1.0, tp / node),
    )


def count_elements(row: StepRow) -> tuple[float, float]:
    """Return the parameters of a stage on one device before ZeRO: dense ones, and those of experts."""
    shape, tp = row.shape, row.tp
    share, layers = shape.expert_share, row.layers
    local = shape.experts / row.ep
    dense = _count(shape.attention_matrices(tp)) + (1 - share) * _count(shape.dense_matrices(tp))
    dense += share * _count(shape.shared_matrices(tp))
    embeddings = shape.vocab * shape.hidden / tp * (1 if row.stages > 1 or shape.is_tied else 2)
    return dense * layers + embeddings, share * _count(shape.expert_matrices()) * local * layers


def _count(matrices: list[tuple[float, float]]) -> float:
    return sum(n * k for n, k in matrices)


def _count_shares(row: StepRow) -> int:
    if row.fsdp > 1:
        return row.fsdp
    return row.state_devices * row.cp if row.zero else 1


def _layer_s(row: StepRow, dtype: str) -> tuple[float, float]:
    """Return the seconds of the products of a layer, on average over layers with experts and without."""
    shape, share = row.shape, row.shape.expert_share
    parts = [(1.0, linear_s(row.hardware, dtype, row.tokens, matrices=shape.attention_matrices(row.tp)))]
    parts += (
        [(1 - share, linear_s(row.hardware, dtype, row.tokens, matrices=shape.dense_matrices(row.tp)))]
        if share < 1
        else []
    )
    if share:
        local = shape.experts / row.ep
        routed = max(1.0, row.tokens * shape.topk / row.tp / local)
        parts.append((share * local, linear_s(row.hardware, dtype, routed, matrices=shape.expert_matrices())))
        parts.append((share, linear_s(row.hardware, dtype, row.tokens, matrices=shape.shared_matrices(row.tp))))
    forward, backward = (sum(weight * times[side] for weight, times in parts) for side in (0, 1))
    return forward, backward


def _attention_s(row: StepRow, dtype: str) -> float:
    """Return the seconds of fused attention of a layer, forward; 0 for f32, which has no such kernel."""
    if dtype == "f32":
        return 0.0
    shape, heads = row.shape, max(1, row.shape.heads // row.tp)
    sizes = {"batch": row.micro_batch, "seq": row.seq, "head_dim": shape.head_dim}
    grouped = max(1, min(heads, shape.kv_heads // row.tp))
    whole = attention_s(row.hardware, dtype, heads=heads, kv_heads=grouped, **sizes) / row.cp
    seen = min(1.0, 2 * shape.window / row.seq) if shape.window else 1.0
    return whole * (1 + (seen - 1) / shape.window_every) * (1.25 if shape.is_latent else 1.0)


def _scores_s(row: StepRow, dtype: str) -> tuple[float, float]:
    """Return the seconds of the two products of attention that is not fused, forward and backward."""
    rows = row.tokens * row.shape.heads / row.tp
    return linear_s(row.hardware, dtype, rows, matrices=[(row.seq, row.shape.head_dim), (row.shape.head_dim, row.seq)])


def _expert_s(row: StepRow) -> float:
    """Return the seconds in which tokens are sent to their experts once."""
    size = row.tokens * row.shape.topk / row.tp * row.shape.hidden * BF16
    return row.shape.expert_share * group_s(row.hardware, Kind.ALL_TO_ALL, row.ep, stride=1, size=size)


def _fsdp_s(row: StepRow) -> float:
    """Return the seconds in which a layer's parameters are gathered twice and its gradients reduced."""
    elements = (sum(count_elements(row)) - row.shape.vocab * row.shape.hidden / row.tp) / row.layers
    gathered = group_s(row.hardware, Kind.ALL_GATHER, row.fsdp, stride=row.tp, size=BF16 * elements)
    return 2 * gathered + group_s(row.hardware, Kind.REDUCE_SCATTER, row.fsdp, stride=row.tp, size=F32 * elements)


def _reduce_s(row: StepRow, dense: float, experts: float) -> float:
    """Return the seconds in which gradients are reduced, in f32; with FSDP each micro batch has done it."""
    if row.fsdp > 1:
        return 0.0
    kind, count = (Kind.REDUCE_SCATTER if row.zero else Kind.ALL_REDUCE), row.data * row.cp
    return group_s(row.hardware, kind, count, stride=row.tp, size=F32 * dense) + group_s(
        row.hardware, kind, max(1, count // row.ep), stride=row.tp * row.ep, size=F32 * experts
    )


def _gather_s(row: StepRow, dense: float, experts: float) -> float:
    """Return the seconds in which ZeRO gathers updated parameters."""
    if row.fsdp > 1 or not row.zero:
        return 0.0
    return group_s(row.hardware, Kind.ALL_GATHER, row.state_devices, stride=row.tp, size=BF16 * dense) + group_s(
        row.hardware, Kind.ALL_GATHER, max(1, row.data // row.ep), stride=row.tp * row.ep, size=BF16 * experts
    )
