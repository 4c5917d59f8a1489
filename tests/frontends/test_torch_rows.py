"""Every row of the ATen table: our ops give torch's numbers."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner.frontends.torch import build_graph_document
from tests.testing.torch_calls import CASES, Calls, run, torch

aten = import_module("planner.frontends.torch.op_table")


@cache
def exported(case: int) -> Any:
    function, args = CASES[case]
    fresh = tuple(arg.clone() if torch.is_tensor(arg) else arg for arg in args)
    return torch.export.export(Calls(function), fresh, strict=False)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_call_gives_the_numbers_that_torch_gives(case: int) -> None:
    function, args = CASES[case]
    document = build_graph_document(exported(case), "call")
    arrays = [arg.numpy().copy() if torch.is_tensor(arg) else arg for arg in args]
    wanted = function(*args)
    wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
    for got, want in zip(run(document, arrays), wanted, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=2e-5, atol=1e-6)
        assert got.dtype == want.numpy().dtype
