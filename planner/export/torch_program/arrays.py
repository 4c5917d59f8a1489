"""An array module on tensors: the array functions of the op table compute with PyTorch.

`torch._numpy` is NumPy's functions in ATen ops. What array functions need beyond it: dtypes that numpy knows, writes
by `ufunc.at`, and what cannot be known before a program runs, as in `planner.export.shard_map.tracer`. Elements that a
mask selects may be written to places that the same mask selects; a range of rows with unknown ends is all rows with
zeros outside.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch._numpy as tnp

AT = {"add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin"}
"""Writes of `ufunc.at` by torch's word for the reduction."""
DIVISIONS = ("floor_divide", "floordiv", "fmod", "remainder", "mod")
"""NumPy's quotients and remainders of integers by zero are zero; PyTorch's are errors."""
UNSIGNED = (np.dtype("uint16"), np.dtype("uint32"))
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class UnknownBeforehand(Exception):
    """An array function asks for what is only known when the program runs."""


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return torch's dtype for one of numpy's."""
    found: torch.dtype = getattr(torch, np.dtype(dtype).name)
    return found


class TensorArray:
    """An array in a tensor; writes may put another tensor in its place."""

    __array_ufunc__ = None  # numpy's scalars leave operators to it

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(str(self.tensor.dtype).removeprefix("torch."))

    @property
    def ndim(self) -> int:
        return int(self.tensor.ndim)

    @property
    def size(self) -> int:
        return int(self.tensor.numel())

    @property
    def T(self) -> TensorArray:  # noqa: N802 (numpy's name)
        made: TensorArray = self.transpose()
        return made

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(tnp.ndarray, name)
        return lambda *given, **named: _apply(method, (self, *given), named)

    def astype(self, dtype: Any, copy: bool = True) -> TensorArray:
        wanted = torch_dtype(dtype)
        if wanted == self.tensor.dtype:
            return TensorArray(self.tensor.clone()) if copy else self
        if np.dtype(dtype) in UNSIGNED and not self.tensor.is_floating_point():
            return TensorArray(_wrap_around(self.tensor.to(torch.int64), np.dtype(dtype)))
        return TensorArray(self.tensor.to(wanted))

    def view(self, dtype: Any) -> TensorArray:
        """Return the same bits in another dtype; for integers of the other signedness itself, as sums are alike."""
        wanted = np.dtype(dtype)
        alike = wanted == self.dtype or {wanted.kind, self.dtype.kind} == {"i", "u"}
        return self if alike else TensorArray(self.tensor.view(torch_dtype(wanted)))

    def tolist(self) -> list[TensorArray]:
        """Return the elements as arrays: only the program that runs knows the numbers."""
        return [self[place] for place in range(self.shape[0])]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, TensorArray) and key.dtype == bool:
            return MaskedTensor(self.tensor, key.tensor)
        if isinstance(key, slice) and isinstance(key.start, TensorArray):
            return TensorArray(torch.where(self._inside(key), self.tensor, 0))
        return _apply(operator.getitem, (self, key), {})

    def _inside(self, rows: slice) -> torch.Tensor:
        """Return which rows are in a range, as a mask that broadcasts."""
        each = torch.arange(self.shape[0]).reshape(-1, *(1,) * (self.ndim - 1))
        return (rows.start.tensor <= each) & (each < rows.stop.tensor)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice) and isinstance(key.start, TensorArray):
            self.tensor = torch.where(self._inside(key), value.tensor, self.tensor)
        elif isinstance(value, MaskedTensor):
            self.write_at(key, value, None)
        else:
            tnp.ndarray(self.tensor)[_unwrapped(key)] = _unwrapped(value)

    def write_at(self, key: Any, value: Any, reduction: str | None) -> None:
        """Set elements, or combine them with a value; places may be the same."""
        if not self.tensor.numel():
            return  # torch refuses every index of an empty dim, even where nothing is written
        keys = [_tensor(each) for each in _key_parts(key)]
        length, written = self.shape[0], self.tensor
        if isinstance(value, MaskedTensor):
            # What the mask leaves out is written behind the end, and cut off.
            written = torch.cat([written, torch.zeros_like(written[:1])])
            beyond = [length, *[0] * (len(keys) - 1)]
            masks = [each.mask if isinstance(each, MaskedTensor) else value.mask for each in _key_parts(key)]
            keys = [torch.where(mask, each, last) for mask, each, last in zip(masks, keys, beyond, strict=True)]
        values = _tensor(value).to(written.dtype)
        if reduction is None or reduction == "sum":
            written = written.index_put(tuple(keys), values, accumulate=reduction is not None)
        else:
            written = _reduce_at(written, keys, values, reduction=reduction)
        self.tensor = written[:length]

    def __bool__(self) -> bool:
        raise UnknownBeforehand("it asks an array for a truth value")

    def __neg__(self) -> TensorArray:
        return TensorArray(-self.tensor)

    def __invert__(self) -> TensorArray:
        return TensorArray(~self.tensor)

    __hash__ = None  # type: ignore[assignment]


def _key_parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


class MaskedTensor:
    """The elements of a tensor that a mask selects."""

    def __init__(self, tensor: torch.Tensor, mask: torch.Tensor) -> None:
        self.tensor, self.mask = tensor, mask

    def view(self, dtype: Any) -> MaskedTensor:
        """Return itself: it is written in the dtype of what it is written to."""
        return self


def _reduce_at(written: torch.Tensor, keys: list[Any], values: torch.Tensor, *, reduction: str) -> torch.Tensor:
    """Combine values with the elements at places of the first dims."""
    rest = written.shape[len(keys) :]
    place = torch.zeros((), dtype=torch.int64)
    for each, size in zip(keys, written.shape, strict=False):
        place = place * size + torch.where(each < 0, each + size, each)
    count = rest.numel()
    flat = (place.reshape(-1, 1) * count + torch.arange(count)).reshape(-1)
    spread = values.expand(*place.shape, *rest).reshape(-1)
    return written.reshape(-1).scatter_reduce(0, flat, spread, reduction).reshape(written.shape)


def _binary(name: str, mirrored: bool) -> Callable[[TensorArray, Any], Any]:
    compute = getattr(operator, name, None) or getattr(operator, f"{name}_")

    def apply(self: TensorArray, other: Any) -> Any:
        return _apply(compute, (other, self) if mirrored else (self, other), {})

    return apply


for _name in (*OPERATORS, *COMPARISONS):
    setattr(TensorArray, f"__{_name}__", _binary(_name, mirrored=False))
    if _name in OPERATORS:
        setattr(TensorArray, f"__r{_name}__", _binary(_name, mirrored=True))


class TensorModule:
    """Stands in for the array module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _TensorFunction(name)

    def cbrt(self, x: TensorArray) -> TensorArray:
        return TensorArray(torch.sign(x.tensor) * torch.abs(x.tensor) ** (1 / 3))

    def pad(self, x: TensorArray, widths: Sequence[tuple[int, int]], constant_values: Any = 0) -> TensorArray:
        flat = [width for pair in reversed(list(widths)) for width in pair]
        return TensorArray(torch.nn.functional.pad(x.tensor, flat, value=constant_values))

    def prod(self, x: TensorArray, axis: Any = None, keepdims: bool = False) -> TensorArray:
        """Multiply along dims one after another: PyTorch takes one."""
        dims = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        tensor = x.tensor
        for dim in sorted((dim % x.ndim for dim in dims), reverse=True):
            tensor = tensor.prod(dim, keepdim=keepdims, dtype=tensor.dtype)
        return TensorArray(tensor)


class _TensorFunction:
    def __init__(self, name: str) -> None:
        self.name, self.function = name, operator.attrgetter(name)(tnp)

    def __getattr__(self, name: str) -> _TensorFunction:
        """Return a function of a module of functions, such as `fft`."""
        if name.startswith("__"):
            raise AttributeError(name)
        return _TensorFunction(f"{self.name}.{name}")

    def __call__(self, *given: Any, **named: Any) -> Any:
        return _apply(self.function, given, named)

    def at(self, into: TensorArray, places: Any, values: Any) -> None:
        """Combine elements at places, as numpy's `ufunc.at` does."""
        if self.name not in AT:
            raise UnknownBeforehand(f"it writes by {self.name}")
        into.write_at(places, values, AT[self.name])


def _apply(function: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call one of NumPy's functions."""
    divisor = given[-1] if function.__name__ in DIVISIONS else None
    if isinstance(divisor, TensorArray) and divisor.dtype.kind in "iu":
        zero = _apply_typed(operator.eq, (divisor, 0), {})
        return _where(zero, 0, _apply_typed(function, (*given[:-1], _where(zero, 1, divisor)), named))
    return _apply_typed(function, given, named)


def _apply_typed(function: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a function with unsigned integers in i64, as PyTorch has no arithmetic of them."""
    dtypes: set[Any] = {each.dtype for each in given if isinstance(each, TensorArray)} or {named.get("dtype")}
    narrow = {dtype for dtype in dtypes if dtype in UNSIGNED}
    if not narrow:
        return _wrapped(function(*map(_unwrapped, given), **_unwrapped(dict(named))))
    wide = [TensorArray(_widen(each)) if isinstance(each, TensorArray) else each for each in given]
    named = {name: np.dtype("int64") if name == "dtype" else each for name, each in named.items()}
    made = _wrapped(function(*map(_unwrapped, wide), **_unwrapped(named)))
    keeps = dtypes == narrow and isinstance(made, TensorArray) and made.dtype == "int64"
    return TensorArray(_wrap_around(made.tensor, max(narrow, key=lambda each: each.itemsize))) if keeps else made


def _where(chosen: Any, number: int, other: Any) -> Any:
    return _apply_typed(tnp.where, (chosen, np.asarray(number, other.dtype)[()], other), {})


def _widen(array: TensorArray) -> torch.Tensor:
    return array.tensor.to(torch.int64) if array.dtype in UNSIGNED else array.tensor


def _wrap_around(tensor: torch.Tensor, dtype: Any) -> torch.Tensor:
    return (tensor & (256**dtype.itemsize - 1)).to(torch_dtype(dtype))


def _tensor(value: Any) -> Any:
    return value.tensor if isinstance(value, (TensorArray, MaskedTensor)) else torch.as_tensor(value)


def _unwrapped(value: Any) -> Any:
    """Return a value as `torch._numpy` takes it."""
    match value:
        case TensorArray():
            return tnp.ndarray(value.tensor)
        case np.dtype() | type():
            return tnp.dtype(np.dtype(value).name)
        case np.ndarray() | np.generic():
            return tnp.ndarray(torch.as_tensor(value))
        case slice():
            return slice(*map(_unwrapped, (value.start, value.stop, value.step)))
        case tuple() | list():
            return type(value)(map(_unwrapped, value))
        case dict():
            return {name: _unwrapped(each) for name, each in value.items() if name not in ("copy", "kind")}
        case _:
            return value


def _wrapped(value: Any) -> Any:
    if isinstance(value, tnp.ndarray):
        return TensorArray(value.tensor)
    return type(value)(map(_wrapped, value)) if isinstance(value, (tuple, list)) else value
