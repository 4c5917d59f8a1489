"""One ATen call, as the rows of the table see it: its arguments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from planner.frontends.dtypes import FROM_TORCH, SPELLINGS
from planner.frontends.framework_call import FrameworkCall
from planner.frontends.graph_builder import DocumentValue
from planner.frontends.uncovered_ops import NotCovered

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, row.torch) for name, row in SPELLINGS.items()}


@dataclass(frozen=True, slots=True)
class NormStatistics:
    """The mean or deviation that a norm saves for its gradient; the backward op computes it again."""

    eps: float


@dataclass(frozen=True, slots=True)
class DropoutSeed:
    """The seed of an attention kernel's dropout, by which the gradient draws the same mask again."""

    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class AtenCall(FrameworkCall):
    """An ATen call; `arguments` by the names of the overload's schema, tensors as values of the document."""

    arguments: Mapping[str, Any]

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def dim(self, argument: str) -> int:
        """Return an argument as a dim of `self`, counted from the left."""
        return int(self[argument]) % max(1, len(self["self"].shape))


RowResult = DocumentValue | NormStatistics | DropoutSeed | None
"""What a row returns for a result of the call; None for a result that nobody reads."""

AtenRow = Callable[[AtenCall], RowResult | Sequence[RowResult]]


def promote_dtypes(*operands: DocumentValue | float) -> str:
    """Return the dtype in which torch compares or combines two operands."""
    left, right = (_without_storage(each) if isinstance(each, DocumentValue) else each for each in operands)
    return dtype_name(torch.result_type(left, right))


def _without_storage(value: DocumentValue) -> torch.Tensor:
    return torch.empty(value.shape, dtype=DTYPES[value.dtype], device="meta")


def dtype_name(dtype: torch.dtype) -> str:
    """Return our name of a torch dtype. Raises NotCovered if there is none."""
    name = FROM_TORCH.get(str(dtype).removeprefix("torch."))
    if name is None:
        raise NotCovered(f"dtype {dtype}")
    return name
