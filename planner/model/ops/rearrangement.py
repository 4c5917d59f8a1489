"""Ops that put elements into other places of a dim, which has to be whole then, or zeros between and around them.

pad            low, z, high -> one dim                  low and high elements of `value` before and after a dim
strided_slice  y[k] = x[step k]                         from the first element on, to the last that fits
dilate         y[step k] = x[k], zeros between          its transpose: the result's dim says how many follow
flip, roll     y[k] = x[n - 1 - k], x[(k - shift) mod n]
tril, triu     x[r, c] where c <= r + diagonal, where c >= r + diagonal; zeros elsewhere
"""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import InvalidGraph
from planner.model.ops.lookup import along
from planner.model.ops.positions import loop_names
from planner.model.ops.row import Array, Local, Row, Signature


def _pad_rule(signature: Signature) -> str:
    """Linear where zeros are added."""
    rank = signature.rank(0)
    ends = [signature.integers(key, rank, least=0) for key in ("low", "high")]
    left, sizes = [], []
    for i, (low, high) in enumerate(zip(*ends, strict=True)):
        parts = [f"p{i}"] * (low > 0) + [f"d{i}"] + [f"q{i}"] * (high > 0)
        left.append(f"{{{'|'.join(parts)}}}" if len(parts) > 1 else parts[0])
        sizes += [f"p{i}={low}"] * (low > 0) + [f"q{i}={high}"] * (high > 0)
    modifiers = (f"; size {' '.join(sizes)}" if sizes else "") + ("" if signature.attrs.get("value") else "; linear 0")
    return f"{_dims(loop_names(rank))} -> {_dims(left)}{modifiers}"


def _dims(names: list[str]) -> str:
    return " ".join(names) or "[]"


def _pad(local: Local, x: Array) -> Array:
    widths = [[local.spans[p].size if p in local.spans else 0 for p in (f"p{i}", f"q{i}")] for i in range(x.ndim)]
    return local.xp.pad(x, widths, constant_values=local.number("value", 0)) if x.ndim else x


def _step(signature: Signature) -> int:
    step = signature.integer("step")
    if step < 1:
        raise InvalidGraph("attribute 'step'", got=step, wanted="1 or more")
    return step


def _strided_rule(signature: Signature) -> str:
    data, kept = along(signature, f"({_step(signature)}*z)", "z")
    return f"{data} -> {kept}; linear 0"


def _strided(local: Local, x: Array) -> Array:
    """Of the windows: from the first local element of the result to the last, and what lies between."""
    dim = int(local.number("dim")) % x.ndim
    return x[(slice(None),) * dim + (slice(None, None, int(local.number("step"))),)]


def _dilate_rule(signature: Signature) -> str:
    """With as many zeros behind every element blocks make blocks of the result; fewer behind the last: whole."""
    step, dim = _step(signature), signature.dim("dim", signature.rank(0))
    size, made = signature.operands[0].shape[dim], signature.results[0].shape[dim]
    if not step * (size - 1) < made <= step * size:
        raise InvalidGraph("dilated dim", got=made, wanted=f"{step * (size - 1) + 1} to {step * size}")
    if made == step * size:
        data, left = along(signature, "z", "(z t)")
        return f"{data} -> {left}; size t={step}; linear 0"
    data, left = along(signature, "z", "t")
    return f"{data} -> {left}; blocked z t; linear 0"


def _dilate(local: Local, x: Array) -> Array:
    dim, made = int(local.number("dim")) % x.ndim, local.xp.zeros(local.shapes[0], x.dtype)
    made[(slice(None),) * dim + (slice(None, None, int(local.number("step"))),)] = x
    return made


def _whole(signature: Signature) -> str:
    dims = signature.dims("dims", signature.rank(0))
    term = _dims(loop_names(signature.rank(0)))
    blocked = f"; blocked {' '.join(f'd{dim}' for dim in dims)}" if dims else ""
    return f"{term} -> {term}{blocked}; linear 0"


def _roll_rule(signature: Signature) -> str:
    signature.integers("shifts", len(signature.dims("dims", signature.rank(0))))
    return _whole(signature)


def _roll(local: Local, x: Array) -> Array:
    return local.xp.roll(x, local.attrs["shifts"], local.dims("dims", x.ndim))


def _triangle_rule(signature: Signature) -> str:
    signature.integer("diagonal", 0)
    return "... r c -> ... r c; linear 0"


def _triangle(lower: bool) -> Callable[[Local, Array], Array]:
    def compute(local: Local, x: Array) -> Array:
        rows, columns = (local.xp.arange(span.start, span.stop) for span in (local.spans["r"], local.spans["c"]))
        beyond = columns[None, :] - rows[:, None] - int(local.number("diagonal", 0))
        return local.xp.where(beyond <= 0 if lower else beyond >= 0, x, x.dtype.type(0))

    return compute


ROWS = (
    Row("pad", _pad_rule, _pad, 0, attrs=("low", "high", "value")),
    Row("strided_slice", _strided_rule, _strided, 0, attrs=("dim", "step")),
    Row("dilate", _dilate_rule, _dilate, 0, attrs=("dim", "step")),
    Row("flip", _whole, lambda local, x: local.xp.flip(x, local.dims("dims", x.ndim)), 0, attrs=("dims",)),
    Row("roll", _roll_rule, _roll, 0, attrs=("dims", "shifts")),
    Row("tril", _triangle_rule, _triangle(lower=True), attrs=("diagonal",)),
    Row("triu", _triangle_rule, _triangle(lower=False), attrs=("diagonal",)),
)
