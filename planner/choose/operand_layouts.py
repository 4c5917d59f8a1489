"""The shardings in which the strategies of a variable produce or read one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.ir.sharding import Sharding


@dataclass(frozen=True, eq=False)
class OperandLayouts:
    """The distinct shardings, and the index of each strategy's (`len(states)`: the strategy has no such value)."""

    states: tuple[Sharding, ...]
    classes: NDArray[np.int32]

    @classmethod
    def of(cls, by_strategy: Iterable[Sharding]) -> OperandLayouts:
        listed = list(by_strategy)
        states = {state: i for i, state in enumerate(dict.fromkeys(listed))}
        return cls(tuple(states), np.array([states[state] for state in listed], np.int32))

    @cached_property
    def index(self) -> dict[Sharding, int]:
        return {state: number for number, state in enumerate(self.states)}

    def is_in(self, sharding: Sharding | None) -> NDArray[np.bool_]:
        """Return for each strategy whether its value has this sharding."""
        number = None if sharding is None else self.index.get(sharding)
        return np.zeros(len(self.classes), bool) if number is None else self.classes == number

    def with_none(self) -> OperandLayouts:
        """Return the layouts with one more strategy, which has no such value."""
        return OperandLayouts(self.states, np.append(self.classes, np.int32(len(self.states))))

    def select(self, chosen: NDArray[np.intp]) -> OperandLayouts:
        """Return the layouts of some of the strategies."""
        return OperandLayouts.of(self.states[self.classes[strategy]] for strategy in chosen)
