"""What one row of the op table says, and what one device knows when it runs the row's array function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from planner.errors import InvalidGraph
from planner.ir.dtypes import is_float
from planner.ir.graph import TensorType
from planner.ir.sharding import Shape

Array = Any
"""A numpy or cupy array."""


@dataclass(frozen=True, slots=True)
class OpSignature:
    """The types and attributes of one op: what a rule may depend on."""

    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    attrs: Mapping[str, object]

    def rank(self, operand: int) -> int:
        return len(self.operands[operand].shape)

    def dim(self, key: str, rank: int) -> int:
        """Attribute `key` as a dim of a tensor of `rank`. Raises InvalidGraph when it is none."""
        return _check_dim(self.attrs.get(key), key, rank)

    def dims(self, key: str, rank: int) -> tuple[int, ...]:
        """Attribute `key` as different dims. Raises InvalidGraph when they are not."""
        listed = self.attrs.get(key)
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            raise InvalidGraph(f"attribute {key!r}", got=listed, wanted="a list of dims")
        dims = tuple(_check_dim(dim, key, rank) for dim in listed)
        if len(set(dims)) != len(dims):
            raise InvalidGraph(f"attribute {key!r}", got=listed, wanted="different dims")
        return dims

    def integer(self, key: str, default: int | None = None) -> int:
        """Attribute `key` as a whole number. Raises InvalidGraph when it is none."""
        value = self.attrs.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidGraph(f"attribute {key!r}", got=value, wanted="a whole number")
        return value

    def integers(self, key: str, count: int, least: int | None = None) -> tuple[int, ...]:
        """Attribute `key` as `count` whole numbers, none below `least`. Raises InvalidGraph when it is not."""
        listed = self.attrs.get(key)
        numbers = tuple(listed) if isinstance(listed, Sequence) and not isinstance(listed, str) else ()
        whole = all(isinstance(n, int) and not isinstance(n, bool) and (least is None or n >= least) for n in numbers)
        if len(numbers) != count or not whole:
            bound = "" if least is None else f" of {least} or more"
            raise InvalidGraph(f"attribute {key!r}", got=listed, wanted=f"{count} whole numbers{bound}")
        return numbers


def _check_dim(value: object, key: str, rank: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -rank <= value < rank:
        raise InvalidGraph(f"attribute {key!r}", got=value, wanted=f"a dim of a tensor of rank {rank}")
    return value % rank


@dataclass(frozen=True, slots=True)
class Span:
    """The part [start, stop) of a loop of `size` that one device runs."""

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
    """What one device knows of the op it runs: its part of every loop, its result shapes, the array module.

    `refuses`: whether a position outside a loop is refused, where it is; else what is read there is zero.
    """

    xp: Any
    attrs: Mapping[str, object]
    spans: Mapping[str, Span]
    shapes: tuple[Shape, ...]
    dtypes: tuple[Any, ...]
    is_strict: bool = True

    def number(self, key: str, default: float | None = None) -> float:
        value = self.attrs.get(key, default)
        assert isinstance(value, (int, float)), f"attribute {key!r} passed the reader as {value!r}"
        return value

    def dims(self, key: str, rank: int) -> tuple[int, ...]:
        """Attribute `key`, a list of dims of a tensor of `rank`."""
        listed: Any = self.attrs[key]
        return tuple(dim % rank for dim in listed)


Compute = Callable[..., Any]

_NUMBERS = (
    "scalar",
    "value",
    "start",
    "stop",
    "step",
    "eps",
    "scale",
    "lr",
    "beta1",
    "beta2",
    "weight_decay",
    "correction",
)
_FLAGS = ("reversed", "causal", "keepdim", "accumulate", "descending")
_WORDS = MappingProxyType({"approximate": ("none", "tanh"), "beyond": ("refuse", "clamp", "wrap", "drop")})


def _attribute_error(key: str, value: object) -> str | None:
    """What an attribute of this name must be, where it is not; dims are checked where the rank is known."""
    if key in _NUMBERS and not isinstance(value, (int, float)):
        return "a number"
    if key in _FLAGS and not isinstance(value, bool):
        return "true or false"
    if value not in _WORDS.get(key, (value,)):
        return f"one of {', '.join(_WORDS[key])}"
    return None


def same_dtype(signature: OpSignature) -> str | None:
    """Operands and results of one dtype."""
    kinds = {kind.dtype for kind in (*signature.operands, *signature.results)}
    return None if len(kinds) == 1 else "operands and results of one dtype"


def float_dtype(signature: OpSignature) -> str | None:
    """Operands and results of one float dtype."""
    floats = all(is_float(kind.dtype) for kind in (*signature.operands, *signature.results))
    return None if floats and same_dtype(signature) is None else "operands and results of one float dtype"


def predicate_dtype(signature: OpSignature) -> str | None:
    """Operands of one dtype, bool results."""
    one = len({kind.dtype for kind in signature.operands}) <= 1
    return None if one and all(k.dtype == "bool" for k in signature.results) else "one dtype in, bool out"


def any_dtype(signature: OpSignature) -> str | None:
    """Any dtypes."""
    return None


@dataclass(frozen=True, slots=True)
class OpDef:
    """An op: name, rule, array function, flops.

    rule     notation, or a function from the op's signature to notation
    compute  (local, *operands) -> array, or a tuple of arrays for several results
    flops    per point of the loops' product, or a function of the loops' sizes
    dtypes   what the dtypes must be: returns what is wanted when they are not
    indexes  operand -> loop: the operand's elements are positions in that loop
    free     the op moves no data (a view): it costs nothing
    attrs    names of the attributes the op may have
    padding  what windows read beyond the ends of an operand
    part     share of the flops that is done, by attributes and loops' sizes, where it is not all of them
    """

    name: str
    rule: str | Callable[[OpSignature], str]
    compute: Compute
    flops: float | Callable[[Mapping[str, int]], float] = 1
    dtypes: Callable[[OpSignature], str | None] = same_dtype
    indexed_loops: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    is_view: bool = False
    attrs: tuple[str, ...] = ()
    padding: float = 0
    flops_fraction: Callable[[Mapping[str, object], Mapping[str, int]], float] | None = None

    def notation(self, signature: OpSignature) -> str:
        """The rule of an op with this signature. Raises InvalidGraph for attributes or dtypes it cannot have."""
        if unknown := sorted(set(signature.attrs) - set(self.attrs)):
            raise InvalidGraph("unknown attribute", got=unknown[0], wanted=f"one of {list(self.attrs)}")
        for key, value in signature.attrs.items():
            if wanted := _attribute_error(key, value):
                raise InvalidGraph(f"attribute {key!r}", got=value, wanted=wanted)
        if wanted := self.dtypes(signature):
            got = [str(kind) for kind in (*signature.operands, *signature.results)]
            raise InvalidGraph("dtype mismatch", got=got, wanted=wanted)
        return self.rule if isinstance(self.rule, str) else self.rule(signature)

    def count_flops(self, sizes: Mapping[str, int], attrs: Mapping[str, object] = MappingProxyType({})) -> float:
        """Floating-point operations over loops of these sizes."""
        flops = self.flops(sizes) if callable(self.flops) else self.flops * math.prod(sizes.values())
        return flops * self.flops_fraction(attrs, sizes) if self.flops_fraction else flops
