"""Signatures of ops whose blocks may travel (`tests.testing.op_case`)."""

from __future__ import annotations

from tests.testing.op_case import Case, of

RING_CASES: list[Case] = [
    *of("scaled_dot_product_attention", "d 8 2, d 16 2, d 16 c -> d 8 c", ring=True, scale=0.5),
    *of("scaled_dot_product_attention", "2 d a 2, 2 1 a 2, 2 1 a 3 -> 2 d a 3", ring=True, causal=True, window=3),
    *of("scaled_dot_product_attention", "d a 2, d b 2, d b c, a b, d 1 1 -> d a c", ring=True, sinks=True),
    *of("scaled_dot_product_attention", "d a 2, d b 2, d b c, d 1 b -> d a c", ring=True),
    *of("scaled_dot_product_attention", "c d a 2, c 1 b 2, c 1 b 3, ?: 1 1 a b -> c d a 3", ring=True, dropout=0.4),
    *of("scaled_dot_product_attention_backward", "d a 2, d b 2, d b c, d a c -> d a 2, d b 2, d b c", ring=True),
    *of(
        "scaled_dot_product_attention_backward",
        "2 d a 2, 2 1 a 2, 2 1 a 3, 2 d a 3 -> 2 d a 2, 2 1 a 2, 2 1 a 3",
        ring=True,
        causal=True,
        window=3,
    ),
    *of(
        "scaled_dot_product_attention_backward",
        "c d a 2, c d b 2, c d b 3, c d a 3, a b, d 1 1 -> c d a 2, c d b 2, c d b 3, d 1 1",
        ring=True,
        sinks=True,
        dropout=0.4,
    ),
    *of(
        "scaled_dot_product_attention_backward",
        "d a 2, d b 2, d b 3, d a 3, d a b -> d a 2, d b 2, d b 3, d a b",
        ring=True,
    ),
]
"""Ops whose blocks may travel; in some versions they cannot: loops that are not even, a mask or a gradient of pairs."""
