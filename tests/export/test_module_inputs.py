"""Arguments of a planned module are known by path, however a call gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

import inspect

import torch

from planner.export.torch_program.module_inputs import InputName, flatten_arguments, name_arguments, order_arguments

pytestmark = pytest.mark.frameworks("torch")

X = torch.ones(2)


class Scaled(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    def forward(self, batch: Mapping[str, Any], *others: Any, scale: float = 2.0, mask: Any = None, **more: Any) -> Any:
        return batch["ids"] * others[0][0] * scale + more["bias"]


def _name(*given: Any, **named: Any) -> dict[str, Any]:
    module = Scaled()
    args, kwargs = order_arguments(module, given, named)
    leaves = torch.export.export(module, args, kwargs).graph_signature.user_inputs
    return name_arguments(module, args, kwargs, leaves=leaves)


def test_tensors_have_the_names_of_the_export_and_other_values_are_themselves() -> None:
    named = _name({"ids": X, "B c": X}, (X, None, 3), bias=X, mask=X)
    assert named == {
        "['batch']['ids']": InputName("batch_ids"),
        "['batch']['B c']": InputName("batch_b_c"),
        "['others'][0][0]": InputName("others_0_0"),
        "['others'][0][1]": None,
        "['others'][0][2]": 3,
        "['scale']": 2.0,
        "['mask']": InputName("mask"),
        "['more']['bias']": InputName("bias"),
    }


def test_a_call_has_the_same_paths_by_position_and_by_name() -> None:
    signature = inspect.signature(torch.nn.Linear(2, 2).forward)
    assert set(flatten_arguments(signature, (X,), {})) == set(flatten_arguments(signature, (), {"input": X}))
