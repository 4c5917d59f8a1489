"""Ops that move elements within a dim, which is then not split, or insert elements between and around them.

pad            low, z, high -> one dim                  inserts low and high elements of `value` at the ends
strided_slice  y[k] = x[step k]                         starts at the first element of x
dilate         y[step k] = x[k], zeros between          the transpose of strided_slice
flip, roll     y[k] = x[n - 1 - k], x[(k - shift) mod n]
tril, triu     x[r, c] where c <= r + diagonal, where c >= r + diagonal; zeros elsewhere
"""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import InvalidGraph
from planner.ops import attribute_types as types
from planner.ops.attributes import DIM, DIMS, Attribute
from planner.ops.gather import dim_terms
from planner.ops.local_indices import name_loops
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature

LOW = Attribute("low", types.whole_numbers(0, per_dim=True))
HIGH = Attribute("high", types.whole_numbers(0, per_dim=True))
VALUE = Attribute("value", types.ELEMENT, 0)
STEP = Attribute("step", types.whole_number(1))
SHIFTS = Attribute("shifts", types.whole_numbers())
DIAGONAL = Attribute("diagonal", types.whole_number(), 0)


def _pad_rule(signature: OpSignature) -> str:
    """Return the rule of pad, which is linear where the padding is zero."""
    rank = signature.rank(0)
    ends = [signature.read(attribute) for attribute in (LOW, HIGH)]
    left, sizes = [], []
    for i, (low, high) in enumerate(zip(*ends, strict=True)):
        parts = [f"p{i}"] * (low > 0) + [f"d{i}"] + [f"q{i}"] * (high > 0)
        left.append(f"{{{'|'.join(parts)}}}" if len(parts) > 1 else parts[0])
        sizes += [f"p{i}={low}"] * (low > 0) + [f"q{i}={high}"] * (high > 0)
    modifiers = (f"; size {' '.join(sizes)}" if sizes else "") + ("" if signature.read(VALUE) else "; linear 0")
    return f"{_dims(name_loops(rank))} -> {_dims(left)}{modifiers}"


def _dims(names: list[str]) -> str:
    return " ".join(names) or "[]"


def _pad(local: OpContext, x: Array) -> Array:
    widths = [[local.spans[p].size if p in local.spans else 0 for p in (f"p{i}", f"q{i}")] for i in range(x.ndim)]
    return local.xp.pad(x, widths, constant_values=local.read(VALUE)) if x.ndim else x


def _strided_rule(signature: OpSignature) -> str:
    data, kept = dim_terms(signature, f"({signature.read(STEP)}*z)", "z")
    return f"{data} -> {kept}; linear 0"


def _strided(local: OpContext, x: Array) -> Array:
    """Take every `step`-th element of x, which reaches from the first local element of the result to the last."""
    dim = local.read(DIM, x.ndim)
    return x[(slice(None),) * dim + (slice(None, None, local.read(STEP)),)]


def _dilate_rule(signature: OpSignature) -> str:
    """Return the rule of dilate. The dim may be split where as many zeros follow the last element as others."""
    step, dim = signature.read(STEP), signature.read(DIM)
    size, made = signature.operands[0].shape[dim], signature.results[0].shape[dim]
    if not step * (size - 1) < made <= step * size:
        raise InvalidGraph("dilated dim", got=made, wanted=f"{step * (size - 1) + 1} to {step * size}")
    if made == step * size:
        data, left = dim_terms(signature, "z", "(z t)")
        return f"{data} -> {left}; size t={step}; linear 0"
    data, left = dim_terms(signature, "z", "t")
    return f"{data} -> {left}; blocked z t; linear 0"


def _dilate(local: OpContext, x: Array) -> Array:
    dim, made = local.read(DIM, x.ndim), local.xp.zeros(local.shapes[0], x.dtype)
    made[(slice(None),) * dim + (slice(None, None, local.read(STEP)),)] = x
    return made


def _whole_dims_rule(signature: OpSignature) -> str:
    dims = signature.read(DIMS)
    term = _dims(name_loops(signature.rank(0)))
    blocked = f"; blocked {' '.join(f'd{dim}' for dim in dims)}" if dims else ""
    return f"{term} -> {term}{blocked}; linear 0"


def _roll_rule(signature: OpSignature) -> str:
    shifts, dims = signature.read(SHIFTS), signature.read(DIMS)
    if len(shifts) != len(dims):
        raise InvalidGraph(
            "attribute 'shifts'", got=list(shifts), wanted=f"{len(dims)} numbers, one for each of 'dims'"
        )
    return _whole_dims_rule(signature)


def _roll(local: OpContext, x: Array) -> Array:
    return local.xp.roll(x, local.read(SHIFTS), local.read(DIMS, x.ndim))


def _triangle(lower: bool) -> Callable[[OpContext, Array], Array]:
    def compute(local: OpContext, x: Array) -> Array:
        rows, columns = (local.xp.arange(span.start, span.stop) for span in (local.spans["r"], local.spans["c"]))
        beyond = columns[None, :] - rows[:, None] - local.read(DIAGONAL)
        return local.xp.where(beyond <= 0 if lower else beyond >= 0, x, x.dtype.type(0))

    return compute


OP_DEFS = (
    OpDef("pad", _pad_rule, _pad, 0, attrs=(LOW, HIGH, VALUE)),
    OpDef("strided_slice", _strided_rule, _strided, 0, attrs=(DIM, STEP)),
    OpDef("dilate", _dilate_rule, _dilate, 0, attrs=(DIM, STEP)),
    OpDef("flip", _whole_dims_rule, lambda local, x: local.xp.flip(x, local.read(DIMS, x.ndim)), 0, attrs=(DIMS,)),
    OpDef("roll", _roll_rule, _roll, 0, attrs=(DIMS, SHIFTS)),
    OpDef("tril", "... r c -> ... r c; linear 0", _triangle(lower=True), attrs=(DIAGONAL,)),
    OpDef("triu", "... r c -> ... r c; linear 0", _triangle(lower=False), attrs=(DIAGONAL,)),
)
