"""Small torch modules."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")


class Linked(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A module with a weight that is used twice and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.second = torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.unused = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))
