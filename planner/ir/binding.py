"""Rules bound to shapes: which loops there are, and how long they are.

`...` is written out as one loop per dim. Then the dims are equations in the sizes of the loops, and they are solved
one unknown at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from planner.errors import InvalidRule
from planner.ir.dynamic_dims import is_known, sizes_agree
from planner.ir.indexing import Loop, LoopKind, Ring, Rule, dim_size, matches_size
from planner.ir.notation import ELLIPSIS, Dim, Pattern, Term, parse_rule
from planner.ir.sharding import Reduction, Shape


def bind_rule(text: str, operands: Sequence[Shape], results: Sequence[Shape]) -> Rule:
    """Give the loops of a rule their sizes. Raises InvalidRule where the shapes contradict the rule."""
    try:
        return _bind_pattern(parse_rule(text), tuple(operands), tuple(results))
    except InvalidRule as error:
        raise error.at(f"rule {text!r}") from None


@lru_cache(maxsize=4096)
def _bind_pattern(pattern: Pattern, operands: tuple[Shape, ...], results: tuple[Shape, ...]) -> Rule:
    _check_count("operands", operands, pattern.operands)
    _check_count("results", results, pattern.results)
    broadcast = _broadcast_sizes(pattern, operands, results)
    shapes = [*operands, *results]
    terms = [
        _expand_ellipsis(term, shape, broadcast)
        for term, shape in zip((*pattern.operands, *pattern.results), shapes, strict=True)
    ]
    sizes = _solve_sizes(terms, shapes, dict(pattern.sizes))
    terms = [tuple(_without_ones(dim, sizes) for dim in term) for term in terms]
    count = len(operands)
    return _make_rule(tuple(terms[:count]), tuple(terms[count:]), sizes, pattern=pattern, shapes=operands)


def _check_count(kind: str, shapes: Sequence[Shape], terms: Sequence[Term]) -> None:
    if len(terms) != len(shapes):
        raise InvalidRule(f"number of {kind}", got=len(shapes), wanted=len(terms))


def _broadcast_sizes(pattern: Pattern, operands: Sequence[Shape], results: Sequence[Shape]) -> list[int]:
    """Return the sizes of the dims that `...` stands for, innermost first: the broadcast of the operands.

    Raises InvalidRule where a result has other dims there.
    """
    under_operands = _all_under_ellipsis(pattern.operands, operands)
    under_results = _all_under_ellipsis(pattern.results, results)
    sizes: list[int] = []
    for under in under_operands or under_results:
        for back, size in enumerate(reversed(under)):
            if back == len(sizes):
                sizes.append(size)
            sizes[back] = size if sizes[back] == 1 or (size != 1 and not is_known(sizes[back])) else sizes[back]
    whole = tuple(reversed(sizes))
    for under in under_results:
        if len(under) != len(whole) or not all(map(sizes_agree, under, whole)):
            raise InvalidRule("result's dims under '...'", got=under, wanted=f"{whole}, the broadcast")
    return sizes


def _all_under_ellipsis(terms: Sequence[Term], shapes: Sequence[Shape]) -> list[Shape]:
    return [_under_ellipsis(term, shape) for term, shape in zip(terms, shapes, strict=True) if Dim((ELLIPSIS,)) in term]


def _under_ellipsis(term: Term, shape: Shape) -> Shape:
    place = term.index(Dim((ELLIPSIS,)))
    extra = len(shape) - (len(term) - 1)
    if extra < 0:
        raise InvalidRule("rank", got=shape, wanted=f"at least {len(term) - 1} dims")
    return tuple(shape[place : place + extra])


def _expand_ellipsis(term: Term, shape: Shape, broadcast: list[int]) -> Term:
    """Return the term with `...` written out; loop `_0` is the innermost broadcast dim."""
    if Dim((ELLIPSIS,)) not in term:
        return term
    place = term.index(Dim((ELLIPSIS,)))
    under = _under_ellipsis(term, shape)
    dims = [
        Dim((f"_{back}",)) if sizes_agree(size, broadcast[back]) else Dim(())
        for back, size in zip(range(len(under) - 1, -1, -1), under, strict=True)
    ]
    return (*term[:place], *dims, *term[place + 1 :])


def _solve_sizes(terms: Sequence[Term], shapes: Sequence[Shape], sizes: dict[str, int]) -> dict[str, int]:
    """Return the sizes of the loops, given those in `sizes` and the dims.

    Single loops are solved first, then what a compound or joined dim leaves for its one unknown loop.
    """
    equations = []
    for term, shape in zip(terms, shapes, strict=True):
        if len(term) != len(shape):
            raise InvalidRule("rank", got=shape, wanted=f"{len(term)} dims")
        equations += list(zip(term, shape, strict=True))
    # Known sizes first, so that a loop in both a known and an unknown dim gets the number.
    equations.sort(key=lambda equation: not is_known(equation[1]))
    progress = True
    while progress:
        progress = False
        for dim, size in equations:
            unknown = [loop for loop in dim.loops if loop not in sizes]
            if len(unknown) == 1 and dim.padding is None:
                sizes[unknown[0]] = _remainder(dim, size, sizes)
                progress = True
    for dim, size in equations:
        if missing := [loop for loop in dim.loops if loop not in sizes]:
            raise InvalidRule("loop size cannot be told", got=str(dim), wanted=f"a size for {missing[0]}")
        if not matches_size(dim, size, sizes):
            raise InvalidRule("shape contradicts the rule", where=f"dim {dim}", got=size, wanted=dim_size(dim, sizes))
    return sizes


def _remainder(dim: Dim, size: int, sizes: Mapping[str, int]) -> int:
    """Return the size that a dim leaves for its one loop that is not in `sizes`."""
    if dim.coefficients:
        factors = dict(zip(dim.loops, dim.coefficients, strict=True))
        known_reach = sum(factor * (sizes[loop] - 1) for loop, factor in factors.items() if loop in sizes)
        factor = next(factor for loop, factor in factors.items() if loop not in sizes)
        return max((size - 1 - known_reach) // factor + 1, 0)
    known_sizes = [sizes[loop] for loop in dim.loops if loop in sizes]
    if dim.joined:
        return max(size - sum(known_sizes), 0)
    product = math.prod(known_sizes)
    return size // product if product else 0


def _without_ones(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """Drop loops of size 1 from a compound dim, so that the next loop becomes its major-most."""
    if dim.joined or dim.coefficients or len(dim.loops) < 2:
        return dim
    return Dim(tuple(loop for loop in dim.loops if sizes[loop] != 1) or dim.loops[:1])


def _make_rule(
    operands: tuple[Term, ...],
    results: tuple[Term, ...],
    sizes: dict[str, int],
    *,
    pattern: Pattern,
    shapes: tuple[Shape, ...],
) -> Rule:
    dims = [dim for term in (*operands, *results) for dim in term]
    in_results = {loop for term in results for dim in term for loop in dim.loops}
    minor = {loop for dim in dims if not dim.joined for loop in dim.loops[1:]}
    major = {dim.loops[0] for dim in dims if not dim.joined and not dim.coefficients and len(dim.loops) > 1}
    joined = {loop for term in results for dim in term if dim.joined for loop in dim.loops}
    carried = {loop for dim in dims if not dim.joined for loop in dim.loops}
    blocked = set(pattern.blocked) | minor | joined
    kinds = dict(pattern.reductions)

    def loop(name: str) -> Loop:
        kind = LoopKind.PARALLEL if name in in_results else LoopKind.REDUCTION
        if name in pattern.opaque:
            kind = LoopKind.OPAQUE
        elif name in blocked or name not in carried or sizes[name] == 1:
            kind = LoopKind.BLOCKED
        return Loop(name, sizes[name], kind, kinds.get(name, Reduction.SUM), even=name in major)

    names = dict.fromkeys(loop for dim in dims for loop in dim.loops)
    loops = (*map(loop, names), *_linear_loops(pattern))
    return Rule(operands, results, loops, pattern, shapes, _find_ring(pattern, loops, results))


def _find_ring(pattern: Pattern, loops: Sequence[Loop], results: Sequence[Term]) -> Ring | None:
    """Return the ring of a rule; None where a loop of it has one iteration, or a result has a dim for each."""
    numbers = {loop.name: number for number, loop in enumerate(loops) if is_known(loop.size) and loop.size > 1}
    for stays, travels, rounds in ((ring.stays, ring.travels, ring.rounds) for ring in pattern.rings):
        pairs = any({stays, travels} <= {loop for dim in term for loop in dim.loops} for term in results)
        if not pairs and {stays, travels} <= numbers.keys():
            return Ring(numbers[stays], numbers[travels], rounds)
    return None


def _linear_loops(pattern: Pattern) -> list[Loop]:
    sums = [("linear ", Reduction.SUM, group) for group in pattern.linear]
    others = [(f"commutes {kind} ", kind, group) for kind, group in pattern.commutes]
    return [
        Loop(word + "+".join(map(str, group)), 0, LoopKind.LINEAR, kind, group) for word, kind, group in sums + others
    ]
