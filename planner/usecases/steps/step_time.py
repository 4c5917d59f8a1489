"""Seconds of a training step from its work and the constants of its software.

    step = m (slowest stage + sends + host) + the other stages once (fill and drain, over v parts)
           + reduction of gradients + gather of parameters + update + host

There are m micro batches, and p stages in v parts each (Narayanan et al., 2021). A layer takes the longer of the
device's time (products, attention, memory passes, collectives) and the host's, which issues it: small micro batches
are bound by the host. Its constants are of forward and backward; full recomputation is a second forward pass, and
that of the attention core a second time of the core. All arguments may be arrays over rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from planner.usecases.steps.rows import StepRow
from planner.usecases.steps.stacks import Stack
from planner.usecases.steps.work import UNSTATED_NODE, StepWork

ATTENTION_BACKWARD = 2.8
"""Time of fused attention's backward over its forward: 2.5 times the FLOPs, at 9/10 of the rate (Dao, 2023)."""
BACKWARD = 2 / 3
"""Share of a micro batch that is its backward pass."""
PASSES = 4
"""Times that activations are reduced, or tokens sent to experts and back, in forward and backward of a layer."""


class StepSizes(NamedTuple):
    """Counts and flags of a step that decide how its work adds up."""

    layers: Any
    stages: Any
    micro_batches: Any
    virtual_stages: Any
    tp: Any
    data: Any
    devices: Any
    zero: Any
    has_fsdp: Any
    has_experts: Any
    has_fp8: Any
    is_unfused: Any
    recomputes_layers: Any
    recomputes_attention: Any
    crosses_nodes: Any


def list_sizes(row: StepRow) -> StepSizes:
    """Return the sizes of a step."""
    node = row.hardware.tiers[0].devices or UNSTATED_NODE
    return StepSizes(
        layers=row.shape.layers,
        stages=row.stages,
        micro_batches=row.micro_batches,
        virtual_stages=row.virtual_stages,
        tp=row.tp,
        data=row.data,
        devices=row.devices,
        zero=row.zero,
        has_fsdp=float(row.fsdp > 1),
        has_experts=float(row.ep > 1),
        has_fp8=float(row.dtype == "fp8"),
        is_unfused=float(row.dtype == "f32"),
        recomputes_layers=float(row.remat == "full"),
        recomputes_attention=float(row.remat == "attention"),
        crosses_nodes=float(row.stages > 1 and row.devices > node),
    )


def time_step(work: StepWork, sizes: StepSizes, stack: Stack) -> dict[str, Any]:
    """Return the seconds of a step's parts, which add up to the step."""
    stages, micro, parts = sizes.stages, sizes.micro_batches, sizes.virtual_stages
    computed, sent, host = _layer_parts(work, sizes, stack)
    layer = np.maximum(computed + sent, host)
    head = stack.product * work.head_s + stack.logit_passes * work.logit_pass_s + stack.tp_traffic * work.tp_s
    held, has_head = count_stage_layers(layer, head, sizes=sizes, stack=stack)
    stage = held * layer + has_head * head
    several = stages > 1
    stall = np.where(stages == 2, 1, 2) * several * stack.send_stall_s * _stalls(sizes, stack)
    sends = several * 2 * parts * work.send_s
    other = stack.micro_batch_host_s + stall
    bubble = np.maximum(sizes.layers * layer + head - stage, 0) / parts
    bubble = bubble + several * (stages - 1) * (sends / parts + stack.micro_batch_host_s)
    slowdown = 1 + stack.node_slowdown * work.nodes
    reduction = work.reduce_s * stack.gradient_traffic * slowdown
    exposed = np.maximum(reduction - stack.reduced_overlap * BACKWARD * stage, (1 - stack.reduced_overlap) * reduction)
    return {
        "compute_s": micro * (held * computed + has_head * (head - stack.tp_traffic * work.tp_s)),
        "collectives_s": micro * (held * sent + has_head * stack.tp_traffic * work.tp_s),
        "host_s": micro * (held * np.maximum(host - computed - sent, 0) + other) + stack.step_host_s,
        "sends_s": micro * sends,
        "bubble_s": bubble,
        "reduction_s": exposed,
        "gather_s": work.gather_s * stack.gather_traffic * slowdown,
        "update_s": stack.update_bytes * work.update_byte_s,
    }


def _layer_parts(work: StepWork, sizes: StepSizes, stack: Stack) -> tuple[Any, Any, Any]:
    """Return seconds of a layer's kernels, of its collectives, and of the host that issues it."""
    again = sizes.recomputes_layers
    product = stack.product * np.where(sizes.has_fp8, stack.fp8_product, 1.0)
    fused = np.where(sizes.is_unfused, False, stack.fuses_attention)
    passes = stack.score_passes * work.score_pass_s
    core = np.where(fused, stack.attention * work.attention_s, work.scores_forward_s + passes / 3)
    core_back = np.where(
        fused, ATTENTION_BACKWARD * stack.attention * work.attention_s, work.scores_backward_s + passes * 2 / 3
    )
    forward = product * work.forward_s + core + stack.pointwise * work.pass_s / 3
    backward = product * work.backward_s + core_back + stack.pointwise * work.pass_s * 2 / 3
    computed = forward * (1 + again) + backward + sizes.recomputes_attention * core
    sent = (PASSES + 2 * again) * (stack.tp_traffic * work.tp_s + stack.expert_traffic * work.expert_s)
    sent = sent + stack.fsdp_traffic * work.fsdp_s
    split = sizes.tp > 1
    host = stack.layer_host_s + split * stack.tp_host_s + sizes.has_experts * stack.expert_host_s
    host = host + (work.tp_nodes > 1) * stack.tp_node_host_s * sizes.tp * work.tp_nodes
    waits = stack.tp_stage_host_s * sizes.tp * (1 + stack.tp_stage_nodes * (work.tp_nodes - 1))
    return computed, sent, (host + split * sizes.crosses_nodes * waits) * (1 + again / 3)


def count_stage_layers(layer: Any, head: Any, *, sizes: StepSizes, stack: Stack) -> tuple[Any, Any]:
    """Return the layers of the slowest stage, and whether it has the head.

    Software that balances the head gives the last stage as many layers less as the head takes.
    """
    layers, stages = sizes.layers, sizes.stages
    even = np.ceil(layers / stages)
    last = np.maximum(np.round(((layers * layer + head) / stages - head) / layer), 0)
    first = np.ceil((layers - last) / np.maximum(stages - 1, 1))
    is_last = last * layer + head >= first * layer
    balanced = np.logical_and(stack.balances_head, stages > 1)
    return np.where(balanced, np.where(is_last, last, first), even), np.where(balanced, is_last, True)


def _stalls(sizes: StepSizes, stack: Stack) -> Any:
    """Return whether sends between stages stall."""
    reduces = (sizes.zero == 0) * (sizes.data > 1) * sizes.crosses_nodes
    return np.maximum(sizes.devices >= stack.stall_devices, reduces)
