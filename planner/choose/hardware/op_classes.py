"""Classes of measured kernels: the work of a row, and the shape figures that its efficiency depends on.

A class reads the columns of a row as arrays. `count_work` returns the FLOPs and the bytes that the kernel must move;
`shape` returns one positive array for each axis of the class's fitted lattice (`planner.choose.hardware.op_times`),
whose points are `knots`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Columns = Mapping[str, Column]
Work = tuple[Column, Column]


@dataclass(frozen=True)
class OpClass:
    """A class of kernels.

    columns   required columns, each a count of 1 or more
    knots     the points of each axis of the lattice
    optional  further columns and their values where a row lacks them
    is_exact  the kernel moves the counted bytes at the least, so that they bound its time
    grows_with  the column along which kernels on other devices are compared; empty: by shape
    is_streaming  memory bounds the kernel, whatever the element type
    """

    columns: tuple[str, ...]
    count_work: Callable[[Columns, float], Work]
    shape: Callable[[Columns], Sequence[Column]]
    knots: tuple[tuple[float, ...], ...]
    optional: tuple[tuple[str, float], ...] = ()
    is_exact: bool = True
    grows_with: str = ""
    is_streaming: bool = False


def powers(first: int, last: int, step: int = 1) -> tuple[float, ...]:
    """Return the powers of two from 2**first to 2**last."""
    return tuple(float(2**each) for each in range(first, last + 1, step))


def _product_work(row: Columns, itemsize: float) -> Work:
    m, n, k = row["m"], row["n"], row["k"]
    return 2 * m * n * k, itemsize * (m * k + k * n) + 2 * m * n


def _batched_product_work(row: Columns, itemsize: float) -> Work:
    batch, m, n, k = row["B"], row["M"], row["N"], row["K"]
    return 2 * batch * m * n * k, itemsize * batch * (m * k + k * n + m * n)


def _visible_pairs(row: Columns) -> Column:
    """Return the pairs of a query and a visible key, for each head of each sequence."""
    seq, prefix = row["seq"], row["prefix"]
    window = np.where(row["window"] > 0, row["window"], np.inf)
    full = seq * (seq + 1) / 2 + seq * prefix
    reach = np.minimum(window, seq + prefix)
    ramp = np.clip(reach - prefix, 0, seq)  # the first queries see fewer keys than the window holds
    windowed = ramp * prefix + ramp * (ramp + 1) / 2 + (seq - ramp) * reach
    return np.minimum(full, windowed)


def _context_work(row: Columns, itemsize: float) -> Work:
    heads, tokens = row["batch"] * row["heads"], row["batch"] * row["seq"]
    cached = row["batch"] * (row["seq"] + row["prefix"]) * row["kv_heads"]
    flops = 4 * heads * row["head_dim"] * _visible_pairs(row)
    return flops, itemsize * row["head_dim"] * (2 * tokens * row["heads"] + 2 * cached)


def _context_shape(row: Columns) -> Sequence[Column]:
    full = row["seq"] * (row["seq"] + 1) / 2 + row["seq"] * row["prefix"]
    grouped = row["heads"] / row["kv_heads"]
    return row["batch"] * row["heads"], row["seq"], row["head_dim"], full / _visible_pairs(row), grouped


def _seen_keys(row: Columns) -> Column:
    return np.where(row["window"] > 0, np.minimum(row["window"], row["kv_len"]), row["kv_len"])


def _generation_work(row: Columns, itemsize: float) -> Work:
    keys = row["batch"] * _seen_keys(row) * row["head_dim"]
    queries = row["batch"] * row["heads"] * row["head_dim"]
    return 4 * keys * row["heads"], itemsize * (2 * keys * row["kv_heads"] + 2 * queries)


def _generation_shape(row: Columns) -> Sequence[Column]:
    grouped, skipped = row["heads"] / row["kv_heads"], row["kv_len"] / _seen_keys(row)
    return row["batch"] * row["kv_heads"], row["kv_len"], row["head_dim"], skipped, grouped


def _routed_tokens(row: Columns) -> Column:
    return row["num_tokens"] * row["topk"] / row["ep"]


def _moe_work(row: Columns, itemsize: float) -> Work:
    inter, local = row["inter"] / row["tp"], row["num_experts"] / row["ep"]
    matrices, routed = 2 + row["gated"], _routed_tokens(row)
    active = local * -np.expm1(-routed / local)  # experts that at least one token reaches, on average
    weights = active * matrices * row["hidden"] * inter * itemsize
    return 2 * routed * matrices * row["hidden"] * inter, weights + 4 * routed * row["hidden"]


def _moe_shape(row: Columns) -> Sequence[Column]:
    local, inter = row["num_experts"] / row["ep"], row["inter"] / row["tp"]
    return row["num_tokens"], row["num_experts"], row["topk"], local, inter, row["hidden"], 1 + row["skew"]


def _streaming_work(tensors: int) -> Callable[[Columns, float], Work]:
    def count(row: Columns, itemsize: float) -> Work:
        size = row["B"] * row["H"]
        return np.zeros_like(size), tensors * itemsize * size

    return count


def _streaming(tensors: int) -> OpClass:
    """Return a class of kernels that memory bounds; its knots span the measured shapes."""
    return OpClass(
        ("B", "H"),
        _streaming_work(tensors),
        lambda row: (row["B"] * row["H"], row["H"]),
        (powers(21, 26), powers(9, 12)),
        grows_with="B",
        is_streaming=True,
    )


def _moe_dispatch_work(row: Columns, _itemsize: float) -> Work:
    moved = row["num_tokens"] * row["hidden"] * 2 * np.minimum(row["topk"], 8)
    return np.zeros_like(moved), moved


def _moe_dispatch_shape(row: Columns) -> Sequence[Column]:
    return row["num_tokens"], row["hidden"], row["topk"], row["num_experts"], np.maximum(row["sms"], 1)


def _collective_work(row: Columns, _itemsize: float) -> Work:
    return np.zeros_like(row["bytes"]), row["bytes"]


PRODUCT_KNOTS = (
    (1.0, 16.0, 32.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 32768.0),
    (32.0, 128.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 65536.0),
    (32.0, 128.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 65536.0),
)
_BMM_KNOTS = (powers(0, 9), powers(4, 10), powers(2, 10), powers(2, 10))
_LINEAR_KNOTS = ((1.0, 2.0), powers(5, 13), powers(7, 15), powers(7, 15))
_HEAD_DIMS = (64.0, 128.0, 192.0, 256.0, 512.0)
_ATTENTION_COLUMNS = ("batch", "heads", "kv_heads", "head_dim")
_MOE_COLUMNS = ("num_tokens", "hidden", "inter", "topk", "num_experts", "tp", "ep")
_BATCHED = OpClass(
    ("B", "M", "N", "K"), _batched_product_work, lambda row: tuple(row[each] for each in "BMNK"), _BMM_KNOTS
)

_COLLECTIVE = OpClass(
    ("bytes", "devices"),
    _collective_work,
    lambda row: (row["bytes"], row["devices"]),
    (powers(8, 30, 2), (2.0, 4.0, 8.0)),
    is_exact=False,
    grows_with="bytes",
)
_MOE_DISPATCH = OpClass(
    ("num_tokens", "hidden", "topk", "num_experts"),
    _moe_dispatch_work,
    _moe_dispatch_shape,
    (powers(0, 16, 2), (2048.0, 7168.0), (1.0, 8.0), (8.0, 64.0, 512.0), (1.0, 8.0, 24.0)),
    (("sms", 0),),
    is_exact=False,
    grows_with="num_tokens",
)

OP_CLASSES: dict[str, OpClass] = {
    "gemm": OpClass(
        ("m", "n", "k"),
        _product_work,
        lambda row: (row["m"], row["n"], row["k"]),
        PRODUCT_KNOTS,
        grows_with="n",
    ),
    "context_attention": OpClass(
        (*_ATTENTION_COLUMNS, "seq"),
        _context_work,
        _context_shape,
        (powers(0, 12, 2), powers(4, 14, 2), _HEAD_DIMS, (1.0, 2.0, 4.0, 16.0, 64.0), powers(0, 6, 2)),
        (("prefix", 0), ("window", 0)),
        grows_with="heads",
    ),
    "generation_attention": OpClass(
        (*_ATTENTION_COLUMNS, "kv_len"),
        _generation_work,
        _generation_shape,
        (powers(0, 14, 2), powers(1, 17, 2), _HEAD_DIMS, (1.0, 8.0, 64.0), powers(0, 7)),
        (("window", 0),),
        grows_with="kv_len",
    ),
    "moe": OpClass(
        _MOE_COLUMNS,
        _moe_work,
        _moe_shape,
        (
            powers(0, 16, 2),
            (8.0, 512.0),
            (1.0, 8.0, 22.0),
            (1.0, 8.0, 64.0, 512.0),
            (64.0, 512.0, 4096.0),
            (2048.0, 7168.0),
            (1.0, 2.2),
        ),
        (("gated", 1), ("skew", 0)),
        is_exact=False,
        grows_with="inter",
    ),
    "bmm": replace(_BATCHED, grows_with="M"),
    "linear": replace(_BATCHED, knots=_LINEAR_KNOTS),
    **{op: _streaming(3) for op in ("add", "mul", "div", "pow")},
    **{op: _streaming(2) for op in ("addu", "mulu", "divu", "powu", "relu", "gelu", "tanh", "softmax", "ln")},
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), _COLLECTIVE),
    **{f"deepep_{op}": _MOE_DISPATCH for op in ("dispatch", "combine")},
}
