"""Constants of the software that runs a training step, fitted to published steps (`benchmarks.fit_steps`).

A row names its software in `stack`, `repo` or `source`; else the constants are those of `default`, fitted to all
sources of fused, well overlapped software. Times are in seconds, bytes are of one element of a tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

DEFAULT_STACK = "default"


@dataclass(frozen=True, slots=True)
class Stack:
    """Constants of one software.

    product           factor on the time of products; `fp8_product` once more on those in fp8
    attention         factor on the time of fused attention
    fuses_attention   whether attention is one kernel; else `score_passes` times the scores go through memory
    pointwise         passes of activations through memory in a layer, forward and backward
    logit_passes      passes of logits in f32
    layer_host_s      the host's time for forward and backward of a layer, `tp_host_s` more with tensor parallelism,
                      `expert_host_s` more with experts on several devices
    tp_node_host_s    more for each device of a tensor-parallel group that spans nodes, times its nodes
    tp_stage_host_s   more for each tensor-parallel device where stages are on several nodes, `tp_stage_nodes` times
                      more for each further node of the group
    micro_batch_host_s, step_host_s  the host's time for a micro batch and a step
    tp_traffic, expert_traffic, fsdp_traffic, gradient_traffic, gather_traffic   factors on collectives
    reduced_overlap   share of the last backward pass beside which gradients are reduced
    node_slowdown     how much longer a collective of all gradients takes for each node
    send_stall_s      wait for a neighbour stage in each micro batch, from `stall_devices` on, or where stages on
                      several nodes reduce gradients without ZeRO
    update_bytes      bytes that the update moves for a parameter
    balances_head     whether the stage with the head has fewer layers
    activation_bytes  kept for a token and its width in a layer; `unsplit_bytes` of them on every tensor-parallel device
    logit_bytes, stage_logit_bytes  for a logit, without and with stages
    work_bytes, base_bytes          working memory for a token and its width, and of the process
    gradient_bytes    of a gradient that is added up over micro batches
    zero_stage        of ZeRO, where a row states none
    recomputes_to_fit whether layers are recomputed where they do not fit and a row does not say
    usable            share of the memory that tensors can use before the allocator fails
    low, high         5th and 95th percentile of measured over predicted
    """

    source: str
    product: float
    fp8_product: float
    attention: float
    fuses_attention: bool
    score_passes: float
    pointwise: float
    logit_passes: float
    layer_host_s: float
    tp_host_s: float
    expert_host_s: float
    tp_node_host_s: float
    tp_stage_host_s: float
    tp_stage_nodes: float
    micro_batch_host_s: float
    step_host_s: float
    tp_traffic: float
    expert_traffic: float
    fsdp_traffic: float
    gradient_traffic: float
    gather_traffic: float
    reduced_overlap: float
    node_slowdown: float
    send_stall_s: float
    stall_devices: float
    update_bytes: float
    balances_head: bool
    activation_bytes: float
    unsplit_bytes: float
    logit_bytes: float
    stage_logit_bytes: float
    work_bytes: float
    base_bytes: float
    gradient_bytes: float
    zero_stage: int
    recomputes_to_fit: bool
    usable: float
    low: float
    high: float


@lru_cache
def load_stacks() -> Mapping[str, Stack]:
    """Return the constants of all software by name."""
    return {name: Stack(**entry["constants"]) for name, entry in read_stacks().items()}


def read_stacks() -> dict[str, Any]:
    """Return the document of the constants: for each software the words that name it, source and residuals."""
    return dict(json.loads((resources.files(__package__) / "stacks.json").read_text())["stacks"])


@lru_cache(maxsize=4096)
def find_stack(words: str) -> str:
    """Return the software that words of a row name, or the default."""
    named = ((name, entry["named_by"]) for name, entry in read_stacks().items())
    return next((name for name, known in named if any(word in words for word in known)), DEFAULT_STACK)
