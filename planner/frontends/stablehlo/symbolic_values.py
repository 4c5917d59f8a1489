"""What the importer knows of an SSA value while it walks the program.

Every value is a *core* that broadcasts to the value's shape, right-aligned as in numpy. StableHLO writes each broadcast
out; here it stays with the value until an op needs it whole, so that `x + b` reads the bias and not a copy of it in
the shape of x. Numbers that the text knows (loop counters, positions, constants) are worked out on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import UnsupportedOp
from planner.frontends.graph_builder import DocumentValue, clamp_infinity
from planner.ir.dtypes import is_float, is_integer
from planner.ir.graph import TensorType
from planner.ir.sharding import Shape

Numbers = NDArray[np.generic]
MAX_KNOWN = 1 << 16
"""Elements that are worked out at most."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownNumbers:
    """Known numbers; of a splat the core is 0-d."""

    core: Numbers
    type: TensorType

    @property
    def splat(self) -> bool:
        return self.core.size == 1

    @property
    def number(self) -> float:
        """The one number of a splat: bool, int or float."""
        one: float = self.core.reshape(-1)[0].item()
        return one

    @property
    def scalar(self) -> float:
        """The one number of a splat as JSON can hold it. Raises UnsupportedOp for NaN and for an infinite integer."""
        number, dtype = self.number, self.type.dtype
        if math.isfinite(number):
            return clamp_infinity(number if is_float(dtype) else int(number), dtype)
        if math.isnan(number) or not is_float(dtype):
            wanted = "a finite number or infinity"
            raise UnsupportedOp("NaN or infinity not representable in JSON", got=str(number), wanted=wanted)
        return clamp_infinity(number, dtype)

    @property
    def whole(self) -> Numbers:
        return np.broadcast_to(self.core, self.type.shape)


@dataclass(frozen=True, slots=True, eq=False)
class TensorSymbol:
    """A value of the document."""

    core: DocumentValue
    type: TensorType

    @classmethod
    def of(cls, value: DocumentValue) -> TensorSymbol:
        return cls(value, value.type)


@dataclass(frozen=True, slots=True, eq=False)
class RowStack:
    """What a loop has written row by row (along dim 0) over `below`; its rows are read back as they were written."""

    below: KnownNumbers | TensorSymbol
    rows: Mapping[int, Symbol]
    type: TensorType

    def with_row(self, index: int, row: Symbol) -> RowStack:
        return RowStack(self.below, {**self.rows, index: row}, self.type)


Symbol = KnownNumbers | TensorSymbol | RowStack


def drop_leading_ones(shape: Shape) -> Shape:
    """Without leading dims of size 1, which broadcasting adds by itself."""
    return tuple(dropwhile(lambda size: size == 1, shape))


def pad_rank(shape: Shape, rank: int) -> Shape:
    """A core's shape, with a dim for each of the value's."""
    return (1,) * (rank - len(shape)) + tuple(shape[max(0, len(shape) - rank) :])


def drop_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def reshape_core(core: Shape, source: Shape, target: Shape) -> Shape | None:
    """The core's shape after a reshape that only adds or drops dims of size 1; None for any other reshape."""
    if drop_ones(source) != drop_ones(target):
        return None
    sizes = iter([size for size, full in zip(pad_rank(core, len(source)), source, strict=True) if full != 1])
    return tuple(1 if size == 1 else next(sizes) for size in target)


def find_spacing(numbers: Numbers) -> tuple[float, float] | None:
    """Start and step of numbers along one dim, where they rise or fall by the same each time."""
    line = numbers.reshape(-1)
    if line.size < 2 or line.dtype == bool or line.size != max(numbers.shape):
        return None
    start, step = line[0].item(), (line[1] - line[0]).item()
    same = math.isfinite(step) and np.array_equal(start + step * np.arange(line.size), line)
    return (start, step) if same else None


def numpy_dtype(dtype: str) -> Any:
    """The dtype in which numbers of the text are worked out: of narrow floats, f32."""
    if is_float(dtype):
        return np.dtype("float64" if dtype == "f64" else "float32")
    if not is_integer(dtype):
        return np.dtype("bool")
    return np.dtype(("uint" if dtype[0] == "u" else "int") + dtype[1:])
