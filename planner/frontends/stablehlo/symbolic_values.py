"""What the importer knows of an SSA value while it walks the program.

Every value has a *core* that broadcasts to the value's shape, right-aligned as in numpy. StableHLO has an op for every
broadcast; here the broadcast stays with the value until an op needs the whole shape, so that `x + b` reads the bias and
not a copy of it in the shape of x. Numbers in the text (loop counters, positions, constants) are computed at import.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.frontends.graph_builder import DocumentValue, clamp_infinity
from planner.ir.dtypes import is_float, is_integer
from planner.ir.graph import TensorType
from planner.ir.sharding import Shape

Numbers = NDArray[np.generic]
MAX_KNOWN = 1 << 16
"""The most elements of a value that is computed at import."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownNumbers:
    """A value whose numbers are known; the core of a splat has one element."""

    core: Numbers
    type: TensorType

    @property
    def splat(self) -> bool:
        return self.core.size == 1

    @property
    def is_scalar(self) -> bool:
        """Whether the value is one number that an attribute can hold: no NaN."""
        return self.splat and not math.isnan(self.number)

    @property
    def number(self) -> float:
        """The number of a splat: bool, int or float."""
        one: float = self.core.reshape(-1)[0].item()
        return one

    @property
    def scalar(self) -> float:
        """The number of a splat as JSON can hold it. It must not be NaN."""
        number, dtype = self.number, self.type.dtype
        return clamp_infinity(number if is_float(dtype) else int(number), dtype)

    @property
    def whole(self) -> Numbers:
        return np.broadcast_to(self.core, self.type.shape)


@dataclass(frozen=True, slots=True, eq=False)
class TensorSymbol:
    """A value of the document, which broadcasts to `type`."""

    core: DocumentValue
    type: TensorType

    @classmethod
    def of(cls, value: DocumentValue) -> TensorSymbol:
        return cls(value, value.type)


@dataclass(frozen=True, slots=True, eq=False)
class RowStack:
    """A tensor that a loop writes row by row along dim 0, over `below`; reading a row returns the written symbol."""

    below: KnownNumbers | TensorSymbol
    rows: Mapping[int, Symbol]
    type: TensorType

    def with_row(self, index: int, row: Symbol) -> RowStack:
        return RowStack(self.below, {**self.rows, index: row}, self.type)


Symbol = KnownNumbers | TensorSymbol | RowStack
NO_ELEMENTS = KnownNumbers(np.zeros((0,), bool), TensorType((), "bool"))
"""Stands for every array without elements. Ops between such arrays emit nothing."""


def drop_leading_ones(shape: Shape) -> Shape:
    """Drop leading dims of size 1, which broadcasting adds by itself."""
    return tuple(dropwhile(lambda size: size == 1, shape))


def pad_rank(shape: Shape, rank: int) -> Shape:
    """Return a core's shape with leading ones, up to `rank` dims."""
    return (1,) * (rank - len(shape)) + tuple(shape[max(0, len(shape) - rank) :])


def drop_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def reshape_core(core: Shape, source: Shape, target: Shape) -> Shape | None:
    """Return the core's shape after a reshape that only adds or drops dims of size 1; None for any other reshape."""
    if drop_ones(source) != drop_ones(target):
        return None
    sizes = iter([size for size, full in zip(pad_rank(core, len(source)), source, strict=True) if full != 1])
    return tuple(1 if size == 1 else next(sizes) for size in target)


def find_spacing(numbers: Numbers) -> tuple[float, float] | None:
    """Return start and step of evenly spaced numbers along one dim; None for other numbers."""
    line = numbers.reshape(-1)
    if line.size < 2 or line.dtype == bool or line.size != max(numbers.shape):
        return None
    start, step = line[0].item(), (line[1] - line[0]).item()
    same = math.isfinite(step) and np.array_equal(start + step * np.arange(line.size), line)
    return (start, step) if same else None


def numpy_dtype(dtype: str) -> Any:
    """Return the numpy dtype in which numbers of the text are computed; narrow floats are computed in f32."""
    if is_float(dtype):
        return np.dtype("float64" if dtype == "f64" else "float32")
    if not is_integer(dtype):
        return np.dtype("bool")
    return np.dtype(("uint" if dtype[0] == "u" else "int") + dtype[1:])
