"""Rows of the op table, and the context in which one device runs a row's array function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from planner.errors import InvalidGraph
from planner.ir.dtypes import DTYPE_BYTES, is_float, is_integer
from planner.ir.graph import TensorType
from planner.ir.sharding import Shape
from planner.ops.attributes import Attribute

T = TypeVar("T")

Array = Any
"""A numpy or cupy array."""


@dataclass(frozen=True, slots=True)
class OpSignature:
    """Types and attributes of one op, on which its rule may depend."""

    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    attrs: Mapping[str, object]

    def rank(self, operand: int) -> int:
        return len(self.operands[operand].shape)

    def read(self, attribute: Attribute[T]) -> T:
        """Return the typed value of an attribute. Raises InvalidGraph where it is missing or of another type."""
        first = (*self.operands, *self.results)[0]
        return attribute.read(self.attrs, len(first.shape))

    def check_element(self, attribute: Attribute[float], dtype: str) -> None:
        """Check that tensors of `dtype` can hold the attribute's number. Raises InvalidGraph."""
        number = self.read(attribute)
        if is_integer(dtype):
            bits = 8 * DTYPE_BYTES[dtype]
            low, high = (0, 1 << bits) if dtype.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
            if not low <= number < high:
                raise InvalidGraph(f"attribute {attribute.name!r}", got=number, wanted=f"a number that {dtype} holds")


@dataclass(frozen=True, slots=True)
class Span:
    """Part [start, stop) of a loop of `size`, which one device runs."""

    start: int
    stop: int
    size: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def is_whole(self) -> bool:
        return self.length == self.size


@dataclass(frozen=True, slots=True)
class OpContext:
    """What one device knows of the op it runs.

    xp         array module: numpy, cupy, or one that records calls
    spans      the device's part of each loop
    shapes     local shapes of the results, and `dtypes` their dtypes in the array module
    is_strict  whether a position outside its loop raises; if not, zero is read there
    """

    xp: Any
    attrs: Mapping[str, object]
    spans: Mapping[str, Span]
    shapes: tuple[Shape, ...]
    dtypes: tuple[Any, ...]
    is_strict: bool = True

    def read(self, attribute: Attribute[T], rank: int = 0) -> T:
        """Return the typed value of an attribute; dims are those of a tensor of `rank`."""
        return attribute.read(self.attrs, rank)


Compute = Callable[..., Any]
State = tuple[Array, ...]
"""What a device keeps between the steps of a ring."""


@dataclass(frozen=True, slots=True)
class RingRound:
    """One round of the blocks that travel; `operands` are the device's own, with the travelling ones of the step.

    begin   (local, operands, state at the end of the round before) -> state
    step    (local, operands, state, sums) -> (state, sums): adds what one block contributes; `local` has the span of
            the block, `sums` are the blocks of results that travel (none before the last round)
    share   of the op's work that the round does
    """

    begin: Callable[[OpContext, Sequence[Array], State], State]
    step: Callable[[OpContext, Sequence[Array], State, State], tuple[State, State]]
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class RingDef:
    """How an op runs while blocks pass round a ring of devices (`planner.ir.ring`).

    rounds  as many as the op's rule says
    finish  (local, operands, state, sums) -> results, of which `sums` are those whose blocks have travelled
    """

    rounds: tuple[RingRound, ...]
    finish: Callable[[OpContext, Sequence[Array], State, State], tuple[Array, ...]]

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the op's work that each round does."""
        return tuple(each.share for each in self.rounds)


def same_dtype(signature: OpSignature) -> str | None:
    """Check that operands and results have one dtype."""
    kinds = {kind.dtype for kind in (*signature.operands, *signature.results)}
    return None if len(kinds) == 1 else "operands and results of one dtype"


def float_dtype(signature: OpSignature) -> str | None:
    """Check that operands and results have one float dtype."""
    floats = all(is_float(kind.dtype) for kind in (*signature.operands, *signature.results))
    return None if floats and same_dtype(signature) is None else "operands and results of one float dtype"


def any_float(signature: OpSignature) -> str | None:
    """Check that operands and results are floats, of any dtypes."""
    floats = all(is_float(kind.dtype) for kind in (*signature.operands, *signature.results))
    return None if floats else "floats"


def predicate_dtype(signature: OpSignature) -> str | None:
    """Check that operands have one dtype and results are bool."""
    one = len({kind.dtype for kind in signature.operands}) <= 1
    return None if one and all(k.dtype == "bool" for k in signature.results) else "one dtype in, bool out"


def any_dtype(signature: OpSignature) -> str | None:
    """Accept any dtypes."""
    return None


@dataclass(frozen=True, slots=True)
class OpDef:
    """A row of the op table.

    rule            notation, or a function from the op's signature to notation
    compute         (local, *operands) -> array, or a tuple of arrays for several results
    flops           operations per point of the product of all loops, or a function of the loops' sizes
    dtypes          checks the dtypes: returns what is wanted, or None where they are right
    indexed_loops   operand -> loop, for operands whose elements are positions in that loop
    is_view         whether the op moves no data, and so costs nothing
    attrs           attributes of the op, with their types and defaults
    padding         value that windows read beyond the ends of an operand
    flops_fraction  (attributes, loop sizes) -> fraction of the flops that is computed; None: all of them
    aligned_loops   loops over positions of one sequence: where their sizes are equal, a smaller program keeps them so
    ring            how it runs while blocks pass round a ring of devices, where its rule has one
    """

    name: str
    rule: str | Callable[[OpSignature], str]
    compute: Compute
    flops: float | Callable[[Mapping[str, int]], float] = 1
    dtypes: Callable[[OpSignature], str | None] = same_dtype
    indexed_loops: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    is_view: bool = False
    attrs: tuple[Attribute[Any], ...] = ()
    padding: float = 0
    flops_fraction: Callable[[Mapping[str, object], Mapping[str, int]], float] | None = None
    aligned_loops: tuple[str, ...] = ()
    ring: RingDef | None = None

    def notation(self, signature: OpSignature) -> str:
        """Return the rule of an op with this signature. Raises InvalidGraph for wrong attributes or dtypes."""
        names = [attribute.name for attribute in self.attrs]
        if unknown := sorted(set(signature.attrs) - set(names)):
            raise InvalidGraph("unknown attribute", got=unknown[0], wanted=f"one of {names}")
        for attribute in self.attrs:
            signature.read(attribute)
        if wanted := self.dtypes(signature):
            got = [str(kind) for kind in (*signature.operands, *signature.results)]
            raise InvalidGraph("dtype mismatch", got=got, wanted=wanted)
        return self.rule if isinstance(self.rule, str) else self.rule(signature)

    def count_flops(self, sizes: Mapping[str, int], attrs: Mapping[str, object] = MappingProxyType({})) -> float:
        """Count the floating-point operations over loops of these sizes."""
        flops = self.flops(sizes) if callable(self.flops) else self.flops * math.prod(sizes.values())
        return flops * self.flops_fraction(attrs, sizes) if self.flops_fraction else flops
