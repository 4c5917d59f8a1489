"""Matrix products. In each reduction group only the first device adds the bias, so that the sum contains it once."""

from __future__ import annotations

import string

from planner.errors import InvalidGraph
from planner.ir.notation import ELLIPSIS, Term, parse_rule
from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature

EQUATION = Attribute("equation", types.EQUATION)


def _linear_rule(signature: OpSignature) -> str:
    """Return the rule of x w^T (+ bias): linear in x and bias together, and in w and bias together."""
    if len(signature.operands) == 3:
        return "... k, n k, n -> ... n; linear 0+2, 1+2"
    return "... k, n k -> ... n; linear 0, 1"


def _linear(local: OpContext, x: Array, weight: Array, bias: Array | None = None) -> Array:
    product = local.xp.matmul(x, weight.T)
    return product if bias is None or not _adds_bias(local) else product + bias


def _addmm_rule(signature: OpSignature) -> str:
    """Return the rule of bias + x w: linear in bias and x together, and in bias and w together."""
    bias, result = signature.operands[0].shape, signature.results[0].shape
    term = ("... " if len(bias) > 1 else "") + ("n" if bias[-1:] == result[-1:] else "1") if bias else "[]"
    return f"{term}, ... k, k n -> ... n; linear 0+1, 0+2"


def _addmm(local: OpContext, bias: Array, x: Array, weight: Array) -> Array:
    product = local.xp.matmul(x, weight)
    return product + bias if _adds_bias(local) else product


def _adds_bias(local: OpContext) -> bool:
    """Return whether this device holds the start of the contraction.

    A bias that is a partial sum over some axes is added on all of their devices: each holds the start.
    """
    return local.spans["k"].start == 0


def _matmul_rule(signature: OpSignature) -> str:
    if min(signature.rank(0), signature.rank(1), len(signature.results[0].shape)) < 2:
        raise InvalidGraph("matmul of vectors", wanted="operands of rank 2 or more (reshape first)")
    return "... m k, ... k n -> ... m n; linear 0, 1"


def _einsum_rule(signature: OpSignature) -> str:
    """Return the attribute `equation`, rule notation of which each dim is one loop, or a window of an operand.

    It is linear in each factor.
    """
    equation = signature.read(EQUATION)
    pattern = parse_rule(equation)
    read, made = _loops(pattern.operands), _loops(pattern.results)
    single = len(pattern.results) == 1 and pattern.operands and ";" not in equation
    if not single or None in read or not made <= read or len(read) > len(string.ascii_letters):
        wanted = "a loop a dim or a window, one result of loops read"
        raise InvalidGraph("attribute 'equation'", got=equation, wanted=wanted)
    return f"{equation}; linear {', '.join(map(str, range(len(pattern.operands))))}"


def _loops(terms: tuple[Term, ...]) -> set[str | None]:
    """Return the loops of the terms, and None if some dim is neither a single loop nor a window."""
    dims = [dim for term in terms for dim in term]
    plain = [
        bool(dim.coefficients) or (len(dim.loops) == 1 and not dim.joined and dim.loops[0] != ELLIPSIS) for dim in dims
    ]
    return {loop if simple else None for dim, simple in zip(dims, plain, strict=True) for loop in dim.loops or ("",)}


def _einsum(local: OpContext, *operands: Array) -> Array:
    """Compute an einsum; loops are renamed to letters, as the array modules accept no words."""
    pattern = parse_rule(local.read(EQUATION))
    terms = [[loop for dim in term for loop in dim.loops] for term in (*pattern.operands, *pattern.results)]
    letter = dict(zip(dict.fromkeys(loop for term in terms for loop in term), string.ascii_letters, strict=False))
    *read, made = ("".join(letter[loop] for loop in term) for term in terms)
    factors = [_unfold(local, *each) for each in zip(operands, pattern.operands, strict=True)]
    return local.xp.einsum(f"{','.join(read)}->{made}", *factors, optimize=True)


def _unfold(local: OpContext, array: Array, term: Term) -> Array:
    """Replace each dim that is read by windows with a dim for each of the window's loops."""
    for dim, each in reversed(list(enumerate(term))):
        if each.coefficients:
            counts = [local.xp.arange(local.spans[loop].length) for loop in each.loops]
            places = counts[0] * each.coefficients[0]
            for factor, count in zip(each.coefficients[1:], counts[1:], strict=True):
                places = places[..., None] + count * factor
            array = array.take(places, axis=dim)
    return array


OP_DEFS = (
    OpDef("matmul", _matmul_rule, lambda local, a, b: local.xp.matmul(a, b), 2),
    OpDef("linear", _linear_rule, _linear, 2),
    OpDef("addmm", _addmm_rule, _addmm, 2),
    OpDef("einsum", _einsum_rule, _einsum, 2, attrs=(EQUATION,)),
)
