"""Convolutions and pooling give PyTorch's numbers in f64; invalid ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InvalidGraph, InvalidRule
from planner.ops import OPS, bind_op
from tests.testing.op_case import Case, of
from tests.testing.op_cases import CASES
from tests.testing.op_trials import Trial

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch")
FORWARD = [case for case in CASES if case.op == "convolution"]
WEIGHT = [case for case in CASES if case.op == "convolution_weight_backward"]
TRANSPOSE = [case for case in CASES if case.op == "convolution_transpose"]
POOLS = [case for case in CASES if case.op.endswith("_pool")]


def attrs_of(case: Case, rank: int) -> dict[str, Any]:
    plain = {"stride": [1] * rank, "padding": [0] * rank, "dilation": [1] * rank}
    return {**plain, **case.attrs}


def ours(case: Case) -> tuple[list[Any], Any]:
    """Random operands, and what the row makes of them."""
    trial = Trial(OPS[case.op], case)
    return [torch.tensor(operand) for operand in trial.operands], torch.tensor(trial.whole[0])


@pytest.mark.parametrize("case", FORWARD, ids=str)
def test_a_convolution_gives_the_numbers_of_torch(case: Case) -> None:
    (x, *rest), made = ours(case)
    rank = x.ndim - 2
    forward = getattr(torch.nn.functional, f"conv{rank}d")
    torch.testing.assert_close(made, forward(x, *rest, **attrs_of(case, rank)))


@pytest.mark.parametrize("case", WEIGHT, ids=str)
def test_the_gradient_of_the_weight_gives_the_numbers_of_torch(case: Case) -> None:
    (x, dy), made = ours(case)
    rank = x.ndim - 2
    gradient = getattr(torch.nn.grad, f"conv{rank}d_weight")
    torch.testing.assert_close(made, gradient(x, made.shape, dy, **attrs_of(case, rank)))


@pytest.mark.parametrize("case", TRANSPOSE, ids=str)
def test_a_transposed_convolution_is_the_gradient_of_the_input(case: Case) -> None:
    (dy, weight), made = ours(case)
    rank = dy.ndim - 2
    gradient = getattr(torch.nn.grad, f"conv{rank}d_input")
    torch.testing.assert_close(made, gradient(made.shape, weight, dy, **attrs_of(case, rank)))


@pytest.mark.parametrize("case", POOLS, ids=str)
def test_pooling_gives_the_numbers_of_torch(case: Case) -> None:
    (x,), made = ours(case)
    rank = len(case.attrs["size"])
    attrs = {key: value for key, value in attrs_of(case, rank).items() if key != "size"}
    if case.op == "average_pool":
        del attrs["dilation"]
    pool = getattr(torch.nn.functional, f"{case.op[:3].replace('ave', 'avg')}_pool{rank}d")
    batched = x.reshape(1, -1, *x.shape[x.ndim - rank :])
    torch.testing.assert_close(made, pool(batched, case.attrs["size"], **attrs).reshape(made.shape))


# op, signature, attrs, what
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("convolution", "2 3 8, 4 3 3 -> 2 4 8", {}, r"spatial dims.* \(got \[8\]; wanted \[6\]"),
    ("convolution", "2 3 2, 4 3 3 -> 2 4 1", {}, "spatial dims"),
    ("convolution", "2 3, 4 3 -> 2 4", {}, "rank"),
    ("convolution", "2 3 8, 4 3 3 -> 2 4 6", {"stride": [0]}, "attribute 'stride'.*whole numbers, each 1 or more"),
    ("convolution", "2 3 8, 4 3 3 -> 2 4 6", {"padding": [0, 0]}, "attribute 'padding'"),
    ("convolution", "2 3 8, 4 3 3 -> 2 4 6", {"dilation": 1}, "attribute 'dilation'"),
    ("convolution", "2 4 8, 3 2 3 -> 2 3 6", {"groups": 2}, "attribute 'groups'"),
    ("convolution", "2 3 8, 4 3 3, 5 -> 2 4 6", {}, "shape contradicts the rule|loop"),
    ("convolution_transpose", "2 3 8, 3 4 3 -> 2 4 12", {}, "spatial dims"),
    ("max_pool", "2 3 8 -> 2 3 6", {"size": 3}, "attribute 'size'"),
    ("max_pool", "2 3 8 -> 2 3 10", {"size": [3], "padding": [2]}, "attribute 'padding'"),
    ("average_pool", "2 3 8 -> 2 3 3", {"size": [3], "stride": [2], "kernel": 3}, "unknown attribute"),
]


@pytest.mark.parametrize(("op", "signature", "attrs", "what"), REFUSED)
def test_an_invalid_convolution_is_refused(op: str, signature: str, attrs: dict[str, Any], what: str) -> None:
    case = of(op, signature, **attrs)[0]
    with pytest.raises((InvalidGraph, InvalidRule), match=what):
        bind_op(op, case.operands, case.results, attrs=case.attrs, notation=None)
