"""Rows of `predict ops`, one or more of each kind, that are predicted."""

from __future__ import annotations

from typing import Any

GEMM: dict[str, Any] = {"op": "gemm", "gpu": "h100_sxm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096}
DECODE = {"op": "generation_attention", "gpu": "h200_sxm", "batch": 64, "kv_len": 8192, "heads": 32, "kv_heads": 8}
PREFILL = {"op": "context_attention", "gpu": "b200_sxm", "batch": 4, "seq": 4096, "heads": 32, "kv_heads": 8}
EXPERTS = {"op": "moe", "gpu": "h100_sxm", "dtype": "fp8", "num_tokens": 4096, "hidden": 7168, "inter": 2048}
ROUTED = {"topk": 8, "num_experts": 256, "tp": 1, "ep": 8}
ALL_REDUCE = {"op": "all_reduce", "gpu": "h100_sxm", "library": "nccl", "devices": 8, "bytes": 1 << 28}
PREDICTED: list[dict[str, Any]] = [
    GEMM,
    GEMM | {"dtype": "fp8_block"},
    GEMM | {"gpu": "l40s", "dtype": "fp8"},
    GEMM | {"gpu": "V100", "dtype": "float16"},
    DECODE | {"head_dim": 128},
    DECODE | {"head_dim": 64, "window": 128},
    PREFILL | {"head_dim": 128},
    EXPERTS | ROUTED,
    EXPERTS | ROUTED | {"distribution": "power_law_1.2", "gated": False},
    ALL_REDUCE,
    ALL_REDUCE | {"devices": 64},
    {
        "op": "deepep",
        "kind": "dispatch",
        "gpu": "b200_sxm",
        "num_tokens": 64,
        "hidden": 7168,
        "topk": 8,
        "num_experts": 256,
    },
    {"op": "softmax", "device": "t4", "B": 4096, "H": 4096},
    {"op": "linear", "device": "v100-pcie-32", "B": 1, "M": 4096, "N": 4096, "K": 1024},
]
