"""Calls that draw random numbers: our bits differ from torch's, our distributions do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

A, F = torch.ops.aten, torch.nn.functional
X = torch.ones(50, 200)

# call, its mean, its variance, whether all its numbers are of these
DRAWS: list[tuple[Callable[..., Any], float, float, set[float] | None]] = [
    (lambda x: F.dropout(x, 0.25), 1, 1 / 3, {0, 4 / 3}),
    (lambda x: A.native_dropout(x, 0.25, True)[0], 1, 1 / 3, {0, 4 / 3}),
    (lambda x: A.native_dropout(x, 0.25, True)[1].float(), 0.75, 0.1875, {0, 1}),
    (lambda x: A.native_dropout_backward(x, *A.native_dropout(x, 0.25, True)[1:], 4 / 3), 1, 1 / 3, {0, 4 / 3}),
    (lambda x: F.dropout(x, 0.0), 1, 0, {1}),
    (lambda x: F.dropout(x, 1.0), 0, 0, {0}),
    (lambda x: F.dropout2d(x.reshape(50, 200, 1, 1), 0.25), 1, 1 / 3, {0, 4 / 3}),
    (lambda x: torch.rand(50, 200), 0.5, 1 / 12, None),
    (torch.rand_like, 0.5, 1 / 12, None),
    (lambda x: torch.randn(50, 200), 0, 1, None),
    (torch.randn_like, 0, 1, None),
    (lambda x: torch.bernoulli(x * 0.2), 0.2, 0.16, {0, 1}),
    (lambda x: x.bernoulli(0.2), 0.2, 0.16, {0, 1}),
    (lambda x: torch.empty_like(x).bernoulli_(0.2), 0.2, 0.16, {0, 1}),
    (lambda x: torch.empty_like(x).uniform_(-1, 3), 1, 16 / 12, None),
    (lambda x: A.uniform.default(x, -1.0, 3.0), 1, 16 / 12, None),
    (lambda x: A.normal_functional.default(x, 2.0, 3.0), 2, 9, None),
    (lambda x: torch.empty_like(x).normal_(2, 3), 2, 9, None),
    (lambda x: torch.randint(4, (50, 200)), 1.5, 1.25, {0, 1, 2, 3}),
    (lambda x: torch.randint(-1, 3, (50, 200)), 0.5, 1.25, {-1, 0, 1, 2}),
    (lambda x: torch.randint_like(x, 4), 1.5, 1.25, {0, 1, 2, 3}),
    (lambda x: torch.randint_like(x, 2, 4), 2.5, 0.25, {2, 3}),
    (lambda x: x.new_empty(50, 200).uniform_(0, 1), 0.5, 1 / 12, None),
]
