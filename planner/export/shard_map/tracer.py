"""Arrays that record the operations on them as Python text in jax.numpy.

A row of the op table is written for any array module. Given this one, its array function writes the body of a Python
function, so that no second table of ops has to agree with the first. JAX tells the shapes and dtypes of results
without computing them (`jax.eval_shape`).

A recorded array cannot know what depends on the device, with five exceptions. The start of a span is a `TracedBound`,
computed from the device's place on the mesh. Elements that a mask selects may be written to places that the same mask
selects (`MaskedArray`). A range of rows with unknown ends may be multiplied, and written to the same rows
(`TracedRows`): it is all rows, with zeros outside. Integers may be added to integers of the other signedness
(`TracedBits`). A truth value is answered by the caller, yes and no in turn (`UndecidedBranch`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from planner.export.shard_map.py_source import format_call

FRESH = frozenset({"zeros", "ones", "empty", "full", "zeros_like", "ones_like", "copy", "pad"})
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}
LOGIC = {"matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class UntraceableOperation(Exception):
    """An array function does something that cannot be recorded before it runs."""


class UndecidedBranch(Exception):
    """The array function asks for a truth value that only the devices know; `text` is its name."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass
class TracePage:
    """The lines of one function; `answers` are the answers to the truth values it asks for, in their order.

    Names of results begin with `prefix`.
    """

    answers: Sequence[bool] = ()
    prefix: str = "v"
    lines: list[str] = field(default_factory=list)
    asked: int = 0

    def line(self, text: str, make: Callable[..., Any], *parts: Any, fresh: bool = False) -> Any:
        """Record the result of `make` applied to the parts, some of them recorded arrays, under a new name."""
        kinds = _evaluate_shape(make, parts)
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        if isinstance(kinds, (tuple, list)):
            return tuple(TracedArray(self, f"{name}[{k}]", kind) for k, kind in enumerate(kinds))
        return TracedArray(self, name, kinds, fresh)

    def answer(self, text: str) -> bool:
        if self.asked == len(self.answers):
            raise UndecidedBranch(text)
        self.asked += 1
        return self.answers[self.asked - 1]


def _evaluate_shape(make: Callable[..., Any], parts: Sequence[Any]) -> Any:
    """Return the shapes and dtypes of a result."""
    leaves, tree = jax.tree_util.tree_flatten(parts, is_leaf=lambda leaf: leaf is None)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, TracedArray)]

    def rebuild(*arrays: Any) -> Any:
        filled = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            filled[place] = array
        return make(*jax.tree_util.tree_unflatten(tree, filled))

    return jax.eval_shape(rebuild, *(leaves[place].kind for place in places))


class TracedArray:
    """An array that has a name in the text, a shape and a dtype; `fresh` ones may be written to."""

    def __init__(self, page: TracePage, text: str, kind: Any, fresh: bool = False) -> None:
        self.page, self.text, self.kind, self.fresh = page, text, kind, fresh

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.kind.shape)

    @property
    def dtype(self) -> Any:
        return np.dtype(self.kind.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(self.kind.size)

    @property
    def T(self) -> Any:  # noqa: N802 (numpy's name)
        return self.transpose()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or not hasattr(jax.Array, name):
            raise AttributeError(name)

        def method(*given: Any, **named: Any) -> Any:
            named.pop("copy", None)
            text = f"{self.text}.{name}({format_call(*given, **named)})"
            return self.page.line(
                text, lambda of, a, k: getattr(of, name)(*a, **k), self, given, named, fresh=name in FRESH
            )

        return method

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, TracedArray) and key.dtype == bool:
            return MaskedArray(self, key)
        if isinstance(key, slice) and _is_traced(key):
            text = f"jnp.where({(inside := self._inside(key)).text}, {self.text}, 0)"
            return TracedRows(self.page.line(text, lambda m, of: jnp.where(m, of, 0), inside, self))
        keys = key if isinstance(key, tuple) else (key,)
        edges = [
            dim for dim, each in enumerate(keys) if isinstance(each, slice) and isinstance(each.start, TracedBound)
        ]
        if edges:
            return self._slice(edges[0], keys[edges[0]])
        return self.page.line(f"{self.text}[{format_call(*keys)}]", lambda of, k: of[k], self, keys)

    def _slice(self, dim: int, part: slice) -> Any:
        """Take a slice that starts at a device's bound in one dim, and the other dims whole."""
        length = part.stop - part.start
        text = f"lax.dynamic_slice_in_dim({self.text}, {part.start.text}, {length}, {dim})"
        return self.page.line(text, lambda of: jax.lax.slice_in_dim(of, 0, length, axis=dim), self)

    def _inside(self, rows: slice) -> TracedArray:
        """Return which rows are in a range, as a mask that broadcasts."""
        each = f"jnp.arange({self.shape[0]}).reshape(-1{', 1' * (self.ndim - 1)})"
        text = f"({rows.start.text} <= {each}) & ({each} < {rows.stop.text})"
        mask = jnp.empty((self.shape[0], *(1,) * (self.ndim - 1)), bool)
        recorded: TracedArray = self.page.line(text, lambda first, last: mask, rows.start, rows.stop)
        return recorded

    def view(self, dtype: Any) -> Any:
        """Return the same bits in another dtype; integers of the other signedness are the target of `add.at`."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        if {wanted.kind, self.dtype.kind} == {"f", "u"} and wanted.itemsize == self.dtype.itemsize:
            text = f"lax.bitcast_convert_type({self.text}, jnp.{wanted})"
            return self.page.line(text, lambda of: jax.lax.bitcast_convert_type(of, wanted), self)
        if {wanted.kind, self.dtype.kind} <= {"i", "u"} and wanted.itemsize == self.dtype.itemsize:
            return TracedBits(self)
        raise UntraceableOperation("it reads bits")

    def tolist(self) -> list[Any]:
        """Return the elements as numbers that only the devices know."""
        return list(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice) and _is_traced(key):
            self._writable()
            text = f"jnp.where({(inside := self._inside(key)).text}, {value.text}, {self.text})"
            self.text = self.page.line(text, jnp.where, inside, value, self).text
        else:
            self.write("set", key, value)

    def _writable(self) -> None:
        if not self.fresh:
            raise UntraceableOperation("it writes through a view")

    def write(self, how: str, key: Any, value: Any) -> None:
        """Set or add to elements. The array goes on under another name."""
        self._writable()
        keys, more = key if isinstance(key, tuple) else (key,), ""
        if isinstance(value, MaskedArray):
            keys = tuple(each.beyond(size) for each, size in zip(keys, self.shape, strict=False))
            value, more = value.array, ', mode="drop"'
        text = f"{self.text}.at[{format_call(*keys)}].{how}({format_call(value)}{more})"
        self.text = self.page.line(text, lambda of, k, v: getattr(of.at[k], how)(v), self, keys, value).text

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(self.shape[0]))

    def __bool__(self) -> bool:
        if self.shape:
            raise UntraceableOperation("it asks an array for a truth value")
        return self.page.answer(self.text)

    def __neg__(self) -> Any:
        return self.page.line(f"-{self.text}", operator.neg, self)

    def __invert__(self) -> Any:
        return self.page.line(f"~{self.text}", operator.invert, self)

    __hash__ = None  # type: ignore[assignment]


def _binary_operator(name: str, sign: str, mirrored: bool) -> Callable[[TracedArray, Any], Any]:
    compute = getattr(operator, name, None) or getattr(operator, f"{name}_")

    def apply(self: TracedArray, other: Any) -> Any:
        left, right = (other, self) if mirrored else (self, other)
        first = format_call(left)
        first = f"({first})" if first.startswith("-") else first  # -2 ** x is -(2 ** x)
        return self.page.line(f"{first} {sign} {format_call(right)}", compute, left, right)

    return apply


def _in_place_operator(self: TracedArray, other: Any) -> Any:
    """Refuse to compute in place: in numpy other arrays may share the elements."""
    raise UntraceableOperation("it computes in place")


for _name, _sign in (ARITHMETIC | LOGIC | COMPARISONS).items():
    setattr(TracedArray, f"__{_name}__", _binary_operator(_name, _sign, mirrored=False))
    if _name not in COMPARISONS:
        setattr(TracedArray, f"__r{_name}__", _binary_operator(_name, _sign, mirrored=True))
        setattr(TracedArray, f"__i{_name}__", _in_place_operator)


class TracedBound(TracedArray):
    """A number that only the device knows, plus an offset that is the same on all."""

    def __init__(self, page: TracePage, known: str, offset: int = 0) -> None:
        self.known, self.offset = known, offset
        text = f"({known} + {offset})" if offset else known
        super().__init__(page, text, jax.ShapeDtypeStruct((), jnp.int32))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, int):
            return TracedBound(self.page, self.known, self.offset + other)
        return self.page.line(f"{self.text} + {format_call(other)}", operator.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, TracedBound) and other.known == self.known:
            return self.offset - other.offset
        if isinstance(other, int):
            return self + -other
        return self.page.line(f"{self.text} - {format_call(other)}", operator.sub, self, other)

    __hash__ = None


@dataclass(frozen=True, slots=True, eq=False)
class MaskedArray:
    """The elements of an array that a mask selects."""

    array: TracedArray
    mask: TracedArray

    def view(self, dtype: Any) -> MaskedArray:
        """Return itself: it is written in the dtype of what it is written to."""
        return self

    def beyond(self, size: int) -> Any:
        """Return the places, with those that the mask leaves out behind the last of a dim of that size."""
        where = f"jnp.where({self.mask.text}, {self.array.text}, {size})"
        return self.array.page.line(where, lambda m, p: jnp.where(m, p, size), self.mask, self.array)


def _is_traced(part: slice) -> bool:
    """Return whether only the devices know where a range begins, and how long it is."""
    return isinstance(part.start, TracedArray) and not isinstance(part.start, TracedBound)


@dataclass(frozen=True, slots=True, eq=False)
class TracedRows:
    """A range of rows that only the devices know: an array with zeros elsewhere, so that products with it are right."""

    array: TracedArray

    @property
    def T(self) -> TracedRows:  # noqa: N802 (numpy's name)
        return TracedRows(self.array.T)


@dataclass(frozen=True, slots=True, eq=False)
class TracedBits:
    """An array of integers to which integers of either signedness may be added."""

    array: TracedArray
