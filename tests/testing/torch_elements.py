"""Calls of torch functions that compute element by element, beside those of `torch_calls`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
A = torch.ops.aten

X, SMALL = torch.linspace(-2, 2, 24).reshape(2, 3, 4), torch.linspace(-0.9, 0.9, 12).reshape(3, 4)
P = torch.linspace(0.5, 3, 12).reshape(3, 4)
N, BITS = torch.arange(-5, 19, 2).reshape(3, 4), torch.tensor([1, 3, 0, 2])
T, ODD = X > 0.3, torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0])

CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *((getattr(A, name).default, (SMALL,)) for name in ("acos", "asin", "asinh", "atan", "atanh", "erfinv")),
    *((getattr(A, name).default, (X,)) for name in ("cosh", "sinh", "tan", "trunc")),
    (A.acosh.default, (P + 1,)),
    (A.asin.default, (BITS // 2,)),
    *((getattr(A, name).default, (ODD,)) for name in ("isfinite", "isnan")),
    *((op.Scalar, (ODD, sign * torch.inf)) for op in (A.eq, A.ne, A.lt, A.le, A.gt, A.ge) for sign in (1, -1)),
    (A.atan2.default, (X, SMALL)),
    (A.atan2.default, (N, BITS)),
    (A.logical_xor.default, (T, N > 0)),
    (A.logical_xor.default, (N + 1, BITS)),
    *((op.Scalar, (each, 3)) for op in (A.fmod, A.remainder) for each in (X, N)),
    *((op.Tensor, (X, P)) for op in (A.fmod, A.remainder)),
    (A.remainder.Tensor, (N, BITS + 1)),
    (A.bitwise_xor.Tensor, (T, N > 0)),
    *((op.Tensor, (N, BITS)) for op in (A.bitwise_xor, A.__xor__)),
    *(
        (op.Scalar, (N, 6))
        for op in (A.bitwise_and, A.bitwise_or, A.bitwise_xor, A.__and__, A.__or__, A.__xor__)
    ),
    (A.bitwise_and.Scalar, (T, True)),
    *(
        (op, (N, BITS))
        for op in (
            A.bitwise_left_shift.Tensor, A.bitwise_right_shift.Tensor, A.__lshift__.Tensor, A.__rshift__.Tensor
        )
    ),
    *(
        (op, (N, 2))
        for op in (
            A.bitwise_left_shift.Tensor_Scalar, A.bitwise_right_shift.Tensor_Scalar, A.__lshift__.Scalar,
            A.__rshift__.Scalar,
        )
    ),
    (lambda x: A.cumprod.default(x, 1), (X,)),
    (lambda x: A.cumprod.default(x, 0), (BITS + 1,)),
]  # fmt: skip
