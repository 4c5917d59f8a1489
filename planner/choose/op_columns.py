"""The class of kernels that an op belongs to, and the columns of the class (`planner.choose.hardware.op_classes`).

product    loops of both operands that the result lacks are k; those of one operand alone m and n; those of all
           three are a batch, of which each entry has m rows more where the class has no column for it
attention  the loops of the result are batch and heads, of which the keys may lack some; s queries attend to t
           keys, one query to a cache where s is 1. Gradients have the shape of their forward kernel
grouped    rows of x go to the experts of a device as their offsets say; the shorter side of a weight is the inner one
streaming  H is the last dim of the largest operand or result, B the product of its other dims. An op without a
           class of its own streams as the sum of two tensors does
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from planner.choose.hardware.efficiency import ATTENTION, ATTENTION_BACKWARD, PRODUCT
from planner.choose.hardware.op_classes import Column, Columns
from planner.ir.graph import Op
from planner.ir.notation import Dim, Term
from planner.ops import (
    activation_backward,
    batch_norm,
    elementwise,
    fused_elementwise,
    grouped_matmul,
    indexed_loops,
    normalization,
    reductions,
)
from planner.ops.attention_scores import WINDOW

STREAMED_AS = {
    "divide": "div",
    "gelu": "gelu",
    "gelu_backward": "gelu",
    "layer_norm": "ln",
    "layer_norm_backward": "ln",
    "log_softmax": "softmax",
    "log_softmax_backward": "softmax",
    "multiply": "mul",
    "pow": "pow",
    "relu": "relu",
    "rms_norm": "ln",
    "rms_norm_backward": "ln",
    "softmax": "softmax",
    "softmax_backward": "softmax",
    "tanh": "tanh",
}
"""Streaming ops with a class of their own."""
GROUPED_OPS = frozenset(row.name for row in grouped_matmul.OP_DEFS)
_FAMILIES = (elementwise, fused_elementwise, activation_backward, normalization, batch_norm, reductions)
STREAMING_OPS = frozenset(row.name for family in _FAMILIES for row in family.OP_DEFS) | {
    "adam",
    "concat",
    "cross_entropy_backward",
    "dropout",
    "embedding",
    "rope",
}
"""Ops that memory bounds: each element is read and written once, in order or by rows."""


def find_class(op: Op, kind: str | None) -> str:
    """Return the name of the class of kernels of an op of a work class; empty: none."""
    if kind == ATTENTION:
        return "context_attention" if _loops_of(op.rule.operands[0][-2:-1]) else "generation_attention"
    if kind == ATTENTION_BACKWARD:
        return "context_attention"
    if op.op in GROUPED_OPS:
        return "moe"
    if kind == PRODUCT and op.results[0].dtype == "f32":
        one, other, made = _product_terms(op)
        return "bmm" if one & other & made else "linear"
    if kind == PRODUCT:
        return "gemm"
    return STREAMED_AS.get(op.op, "add") if op.op in STREAMING_OPS else ""


def read_columns(op: Op, kind: str | None, sizes: Sequence[tuple[int, ...]]) -> Columns:
    """Return the columns of an op's class; `sizes` are those of the loops of each local part."""
    by_loop = dict(zip(op.rule.sizes, np.array(sizes, np.float64).T, strict=True))
    by_kind = {PRODUCT: _product_columns, None: _streaming_columns}
    read = _grouped_columns if op.op in GROUPED_OPS else by_kind.get(kind, _attention_columns)
    return read(op, by_loop, np.ones(len(sizes)))


def _product_columns(op: Op, sizes: Columns, ones: Column) -> Columns:
    """Return the columns of `gemm` and of the batched classes."""
    one, other, made = _product_terms(op)
    batch, m, n, k = (
        _product_of(sizes, loops, ones)
        for loops in (one & other & made, one - other, other - one, (one & other) - made)
    )
    return {"m": batch * m, "n": n, "k": k, "B": batch, "M": m, "N": n, "K": k}


def _grouped_columns(_op: Op, sizes: Columns, ones: Column) -> Columns:
    """Return the columns of `moe`: the rows that reach the experts of the device, one expert a row."""
    rows, sides = sizes["t"] * sizes["e"] / sizes["o"], (sizes["n"], sizes["k"])
    plain = dict.fromkeys(("topk", "tp", "ep", "gated"), ones) | {"skew": 0 * ones}
    return {
        **plain,
        "num_tokens": np.maximum(rows, 1),
        "num_experts": sizes["e"],
        "hidden": np.maximum(*sides),
        "inter": np.minimum(*sides),
    }


def _attention_columns(op: Op, sizes: Columns, ones: Column) -> Columns:
    """Return the columns of attention of a prompt, and of one query to a cache."""
    query, key, *_ = op.rule.operands
    heads, held = (_product_of(sizes, _loops_of(term[:-2]), ones) for term in (op.rule.results[0], key))
    queries, keys, head_dim = (_product_of(sizes, _loops_of([dim]), ones) for dim in (query[-2], key[-2], query[-1]))
    prefix, window = np.maximum(keys - queries, 0), ones * WINDOW.read(op.attrs)
    figures = {"seq": queries, "prefix": prefix, "kv_len": keys, "head_dim": head_dim, "window": window}
    return {"batch": ones, "heads": heads, "kv_heads": held, **figures}


def _streaming_columns(op: Op, sizes: Columns, ones: Column) -> Columns:
    """Return rows and their length, of the largest operand or result; of the result of a lookup."""
    whole, read = op.rule.sizes, () if indexed_loops(op) else op.rule.operands
    largest = max((*op.rule.results, *read), key=lambda term: math.prod(whole[loop] for loop in _loops_of(term)))
    length = _product_of(sizes, _loops_of(largest[-1:]), ones)
    return {"B": _product_of(sizes, _loops_of(largest), ones) / length, "H": length}


def _product_terms(op: Op) -> tuple[set[str], set[str], set[str]]:
    """Return the loops of the two operands that are contracted, and those of the results."""
    terms = [_loops_of(term) for term in op.rule.operands]
    made = set().union(*map(_loops_of, op.rule.results))
    one, other = next((a, b) for a, b in combinations(terms, 2) if a - b and b - a and (a & b) - made)
    return one, other, made


def _loops_of(term: Term | Sequence[Dim]) -> set[str]:
    return {loop for dim in term for loop in dim.loops}


def _product_of(sizes: Mapping[str, Column], loops: set[str], ones: Column) -> Column:
    return math.prod((sizes[loop] for loop in loops), start=ones)
