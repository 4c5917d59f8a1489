"""Ops that only rearrange elements, and ops without operands."""

from __future__ import annotations

import math

from planner.errors import InvalidGraph
from planner.ir.sharding import Shape
from planner.ops import attribute_types as types
from planner.ops.attributes import DIM, Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, any_dtype

PERMUTATION = Attribute("permutation", types.PERMUTATION)
SLICE_START = Attribute("start", types.whole_number(0))
SLICE_STOP = Attribute("stop", types.whole_number(1))
START = Attribute("start", types.NUMBER, 0)
STEP = Attribute("step", types.NUMBER, 1)
ARANGE_DIM = Attribute("dim", types.DIM, 0)
VALUE = Attribute("value", types.ELEMENT)


def _loops(count: int, prefix: str = "d") -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def _reshape_rule(signature: OpSignature) -> str:
    """Return a rule that writes both shapes as products of common loops, such as `d0 d1 (d2 d3) -> d0 d1 d2 d3`.

    From the minor end, a loop is the smaller of two dims where it divides the other. Dims that do not divide each
    other are blocked loops of one side, up to where the products of both sides agree again.
    """
    source, target = signature.operands[0].shape, signature.results[0].shape
    if math.prod(source) != math.prod(target):
        raise InvalidGraph("reshape changes the number of elements", got=list(target), wanted=list(source))
    left, right, blocked = _common_loops(source, target)
    text = f"{_dims(left)} -> {_dims(right)}; linear 0"
    return text + (f"; blocked {' '.join(blocked)}" if blocked else "")


def _common_loops(source: Shape, target: Shape) -> tuple[list[str], list[str], list[str]]:
    """Return the dims of source and target in loops, and the loops that exist on one side only."""
    left: list[list[str]] = [[] for _ in source]
    right: list[list[str]] = [[] for _ in target]
    rest_left, rest_right = list(source), list(target)
    blocked: list[str] = []
    count, i, j = 0, len(source) - 1, len(target) - 1
    while i >= 0 or j >= 0:
        if i >= 0 and rest_left[i] == 1:
            i -= 1
            continue
        if j >= 0 and rest_right[j] == 1:
            j -= 1
            continue
        # From the minor end: only a major part of a dim can be split, and the loops are cut where both sides cut.
        common = math.gcd(rest_left[i], rest_right[j])
        if common == min(rest_left[i], rest_right[j]):
            name, count = f"d{count}", count + 1
            left[i].insert(0, name)
            right[j].insert(0, name)
            rest_left[i] //= common
            rest_right[j] //= common
            continue
        i, j, count = _block_stretch(left, right, rest_left, rest_right=rest_right, blocked=blocked, at=(i, j, count))
    return [_dim(names) for names in left], [_dim(names) for names in right], blocked


def _block_stretch(
    left: list[list[str]],
    right: list[list[str]],
    rest_left: list[int],
    *,
    rest_right: list[int],
    blocked: list[str],
    at: tuple[int, int, int],
) -> tuple[int, int, int]:
    """Make each dim a blocked loop, on both sides, up to where the products of the sides agree again.

    `at` and the result are the dims reached in source and target and the number of loops.
    """
    i, j, count = at
    product_left = product_right = 1
    while True:
        # The side that is behind takes its next dim, so the stretch is as short as it can be.
        if product_left <= product_right:
            side, rest, place, i = left, rest_left, i, i - 1
            product_left *= rest[place]
        else:
            side, rest, place, j = right, rest_right, j, j - 1
            product_right *= rest[place]
        name, count = f"d{count}", count + 1
        side[place].insert(0, name)
        blocked.append(name)
        rest[place] = 1
        if product_left == product_right:
            return i, j, count


def _dim(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({' '.join(names)})" if names else "1"


def _dims(names: list[str]) -> str:
    return " ".join(names) or "[]"


def _reshape(local: OpContext, x: Array) -> Array:
    return x.reshape(local.shapes[0])


def _transpose_rule(signature: OpSignature) -> str:
    names = _loops(signature.rank(0))
    return f"{_dims(names)} -> {_dims([names[dim] for dim in signature.read(PERMUTATION)])}; linear 0"


def _transpose(local: OpContext, x: Array) -> Array:
    return x.transpose(local.read(PERMUTATION, x.ndim))


def _expand_rule(signature: OpSignature) -> str:
    """Return the rule of numpy broadcasting: dims of size 1 grow, and missing leading dims are added."""
    source, target = signature.operands[0].shape, signature.results[0].shape
    names = _loops(len(target))
    kept = list(zip(source, target[len(target) - len(source) :], names[len(target) - len(source) :], strict=True))
    term = ["1" if have == 1 != want else name for have, want, name in kept]
    return f"{_dims(term)} -> {_dims(names)}; linear 0"


def _expand(local: OpContext, x: Array) -> Array:
    return local.xp.broadcast_to(x, local.shapes[0])


def _dim_terms(signature: OpSignature, dim: int, inside: list[str], *, rank: int) -> list[str]:
    """Return one term per text in `inside`: that text in dim `dim`, and the same loops in the other dims."""
    names = _loops(rank)
    return [" ".join([*names[:dim], text, *names[dim + 1 :]]) for text in inside]


def _slice_rule(signature: OpSignature) -> str:
    rank = signature.rank(0)
    dim = signature.read(DIM)
    size, length = signature.operands[0].shape[dim], signature.results[0].shape[dim]
    start, stop = signature.read(SLICE_START), signature.read(SLICE_STOP)
    if not 0 <= start < stop <= size or stop - start != length:
        raise InvalidGraph("slice bounds", got=[start, stop], wanted=f"{length} elements inside 0..{size}")
    parts = ["p"] * (start > 0) + ["z"] + ["q"] * (stop < size)
    if len(parts) == 1:
        (whole,) = _dim_terms(signature, dim, ["z"], rank=rank)
        return f"{whole} -> {whole}; linear 0"
    joined, kept = _dim_terms(signature, dim, ["{" + "|".join(parts) + "}", "z"], rank=rank)
    return f"{joined} -> {kept}; linear 0" + (f"; size p={start}" if start else "")


def _slice(local: OpContext, x: Array) -> Array:
    dim = local.read(DIM, x.ndim)
    span = local.spans["z"]
    if not {"p", "q"} & set(local.spans):
        return x  # The slice is the whole dim, so operand and result are split alike.
    before = local.spans["p"].size if "p" in local.spans else 0
    return x[(slice(None),) * dim + (slice(before + span.start, before + span.stop),)]


def _split_rule(signature: OpSignature) -> str:
    rank = signature.rank(0)
    dim = signature.read(DIM)
    parts = [f"z{k}" for k in range(len(signature.results))]
    joined, *pieces = _dim_terms(signature, dim, ["{" + "|".join(parts) + "}", *parts], rank=rank)
    return f"{joined} -> {', '.join(pieces)}; linear 0"


def _split(local: OpContext, x: Array) -> tuple[Array, ...]:
    dim = local.read(DIM, x.ndim)
    pieces, before = [], 0
    for k in range(len(local.shapes)):
        span = local.spans[f"z{k}"]
        pieces.append(x[(slice(None),) * dim + (slice(before + span.start, before + span.stop),)])
        before += span.size
    return tuple(pieces)


def _concat_rule(signature: OpSignature) -> str:
    rank = len(signature.results[0].shape)
    dim = signature.read(DIM)
    parts = [f"z{k}" for k in range(len(signature.operands))]
    joined, *pieces = _dim_terms(signature, dim, ["{" + "|".join(parts) + "}", *parts], rank=rank)
    return f"{', '.join(pieces)} -> {joined}; linear {'+'.join(map(str, range(len(parts))))}"


def _concat(local: OpContext, *pieces: Array) -> Array:
    return local.xp.concatenate(pieces, axis=local.read(DIM, pieces[0].ndim))


def _arange_rule(signature: OpSignature) -> str:
    """Return the rule of arange, which counts along `dim` and is constant along the other dims."""
    shape = signature.results[0].shape
    dim = signature.read(ARANGE_DIM)
    if ARANGE_DIM.name not in signature.attrs and len(shape) != 1:
        raise InvalidGraph("arange makes one dim", got=list(shape), wanted="[length], or attribute 'dim'")
    return f"-> {_dim_terms(signature, dim, ['n'], rank=len(shape))[0]}"


def _arange(local: OpContext) -> Array:
    span, shape = local.spans["n"], local.shapes[0]
    index = local.xp.arange(span.start, span.stop)
    counted = (local.read(START) + local.read(STEP) * index).astype(local.dtypes[0])
    behind = (1,) * (len(shape) - 1 - local.read(ARANGE_DIM, len(shape)))
    return local.xp.broadcast_to(counted.reshape(-1, *behind), shape)


def _full_rule(signature: OpSignature) -> str:
    return "-> " + _dims(_loops(len(signature.results[0].shape)))


def _full(local: OpContext) -> Array:
    return local.xp.full(local.shapes[0], local.read(VALUE), dtype=local.dtypes[0])


OP_DEFS = (
    OpDef("reshape", _reshape_rule, _reshape, 0, is_view=True),
    OpDef("transpose", _transpose_rule, _transpose, 0, is_view=True, attrs=(PERMUTATION,)),
    OpDef("expand", _expand_rule, _expand, 0, is_view=True),
    OpDef("slice", _slice_rule, _slice, 0, is_view=True, attrs=(DIM, SLICE_START, SLICE_STOP)),
    OpDef("split", _split_rule, _split, 0, is_view=True, attrs=(DIM,)),
    OpDef("concat", _concat_rule, _concat, 0, attrs=(DIM,)),
    OpDef("arange", _arange_rule, _arange, 0, any_dtype, attrs=(START, STEP, ARANGE_DIM)),
    OpDef("full", _full_rule, _full, 0, any_dtype, attrs=(VALUE,)),
)
