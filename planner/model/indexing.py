"""Rules bound to sizes, and the shardings that an option (mesh axes per loop) gives every operand and result.

The mathematics is that of the mesh dialect's sharding interface (loop iterator types and indexing maps):
  * splitting a parallel loop splits every dim it indexes;
  * splitting a reduction loop leaves the results partial over its axes, with the loop's reduction;
  * a compound dim can be split only along its major-most loop, and only evenly, so that a block of the dim
    is a block of the loop; a joined dim is always whole (its loops may be split where they stand elsewhere,
    but not when the joined dim is a result's);
  * a window dim, sum(coefficient * loop), is split along its first loop only: the blocks of the loop read blocks
    of the dim and a halo around them (`Rule.windows` tells which loops those are);
  * a *linear* loop iterates over the terms of a partial sum: its operands come in partial over its axes and
    its results leave partial over them (the op commutes with the sum; with another reduction, if the loop has it).
A dim of size K split over n devices has blocks of ceil(K / n) (see `planner.model.sharding`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from planner.errors import InvalidRule
from planner.model.mesh import Mesh
from planner.model.notation import ELLIPSIS, Dim, Pattern, Term, parse
from planner.model.sharding import Axes, Reduction, Shape, Sharding

Option = tuple[Axes, ...]


class LoopKind(StrEnum):
    """Iterator types of the mesh dialect, and the loop over the terms of a partial sum."""

    PARALLEL = "parallel"
    REDUCTION = "reduction"
    BLOCKED = "blocked"
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of an op. A linear loop has no size of its own; `operands` are those it is linear in.

    `reduction` is how the terms of a reduction or linear loop combine.
    """

    name: str
    size: int
    kind: LoopKind
    reduction: Reduction = Reduction.SUM
    operands: tuple[int, ...] = ()
    even: bool = False


@dataclass(frozen=True)
class Rule:
    """Loops with sizes and one term per operand and result."""

    operands: tuple[Term, ...]
    results: tuple[Term, ...]
    loops: tuple[Loop, ...]
    pattern: Pattern

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {loop.name: loop.size for loop in self.loops if loop.kind is not LoopKind.LINEAR}

    def operand_sharding(self, operand: int, option: Option) -> Sharding:
        """The sharding in which the op, run under `option`, reads an operand."""
        partial = [
            (loop.reduction, axis)
            for loop, axes in zip(self.loops, option, strict=True)
            if operand in loop.operands
            for axis in axes
        ]
        return _sharding(self._split(self.operands[operand], option), partial)

    def result_sharding(self, result: int, option: Option) -> Sharding:
        """The sharding in which the op, run under `option`, leaves a result."""
        term = self.results[result]
        return _sharding(self._split(term, option), self._partial(term, option))

    def allows(self, option: Option, mesh: Mesh) -> bool:
        """Whether the option may be chosen: every loop splittable that far without halo, one reduction a result."""
        return all(
            not axes or (splittable(loop, mesh.group_size(axes)) and loop.name not in self.windows)
            for loop, axes in zip(self.loops, option, strict=True)
        ) and all(len({kind for kind, _ in self._partial(term, option)}) <= 1 for term in self.results)

    @cached_property
    def carried(self) -> frozenset[str]:
        """Loops along which an operand is split: without such an operand every device has all the data."""
        return frozenset(dim.loops[0] for term in self.operands for dim in term if dim.loops and not dim.joined)

    @cached_property
    def windows(self) -> frozenset[str]:
        """Loops whose blocks read more or other than a block of an operand: the first of every window."""
        return frozenset(dim.loops[0] for term in self.operands for dim in term if dim.coefficients)

    def _split(self, term: Term, option: Option) -> tuple[Axes, ...]:
        axes = {loop.name: axes for loop, axes in zip(self.loops, option, strict=True)}
        return tuple(() if dim.joined or not dim.loops else axes[dim.loops[0]] for dim in term)

    def _partial(self, term: Term, option: Option) -> list[tuple[Reduction, int]]:
        """Reduction and mesh axis of every partial sum in a result."""
        present = {loop for dim in term for loop in dim.loops}
        return [
            (loop.reduction, axis)
            for loop, axes in zip(self.loops, option, strict=True)
            if loop.kind is LoopKind.LINEAR or (loop.name in self.carried and loop.name not in present)
            for axis in axes
        ]


def _sharding(split: tuple[Axes, ...], partial: Sequence[tuple[Reduction, int]]) -> Sharding:
    kinds = sorted({kind for kind, _ in partial})
    if len(kinds) > 1:
        raise InvalidRule("option mixes reductions", got=kinds, wanted="one kind")
    return Sharding(split, tuple(axis for _, axis in partial), kinds[0] if kinds else Reduction.SUM)


def splittable(loop: Loop, parts: int) -> bool:
    """Whether a loop may be split over that many devices."""
    if loop.kind is LoopKind.LINEAR:
        return True
    return loop.kind is not LoopKind.BLOCKED and parts <= loop.size and (not loop.even or loop.size % parts == 0)


def bind(text: str, operands: Sequence[Shape], results: Sequence[Shape]) -> Rule:
    """Give the loops of a rule their sizes. Raises InvalidRule where the shapes contradict it."""
    try:
        return _bind(parse(text), tuple(operands), tuple(results))
    except InvalidRule as error:
        raise error.at(f"rule {text!r}") from None


@lru_cache(maxsize=4096)
def _bind(pattern: Pattern, operands: tuple[Shape, ...], results: tuple[Shape, ...]) -> Rule:
    _check_count("operands", operands, pattern.operands)
    _check_count("results", results, pattern.results)
    broadcast = _broadcast_sizes(pattern, operands, results)
    shapes = [*operands, *results]
    terms = [
        _expand(term, shape, broadcast)
        for term, shape in zip((*pattern.operands, *pattern.results), shapes, strict=True)
    ]
    sizes = _solve(terms, shapes, dict(pattern.sizes))
    terms = [tuple(_without_ones(dim, sizes) for dim in term) for term in terms]
    count = len(operands)
    return _with_loops(tuple(terms[:count]), tuple(terms[count:]), sizes, pattern)


def _check_count(kind: str, shapes: Sequence[Shape], terms: Sequence[Term]) -> None:
    if len(terms) != len(shapes):
        raise InvalidRule(f"number of {kind}", got=len(shapes), wanted=len(terms))


def _broadcast_sizes(pattern: Pattern, operands: Sequence[Shape], results: Sequence[Shape]) -> list[int]:
    """Sizes of the dims that `...` stands for, innermost first: the operands' broadcast, which results must be."""
    read = _all_under_ellipsis(pattern.operands, operands)
    made = _all_under_ellipsis(pattern.results, results)
    sizes: list[int] = []
    for under in read or made:
        for back, size in enumerate(reversed(under)):
            if back == len(sizes):
                sizes.append(size)
            sizes[back] = size if sizes[back] == 1 else sizes[back]
    whole = tuple(reversed(sizes))
    for under in made:
        if under != whole:
            raise InvalidRule("result's dims under '...'", got=under, wanted=f"{whole}, the broadcast")
    return sizes


def _all_under_ellipsis(terms: Sequence[Term], shapes: Sequence[Shape]) -> list[Shape]:
    return [_under_ellipsis(term, shape) for term, shape in zip(terms, shapes, strict=True) if Dim((ELLIPSIS,)) in term]


def _under_ellipsis(term: Term, shape: Shape) -> Shape:
    at = term.index(Dim((ELLIPSIS,)))
    extra = len(shape) - (len(term) - 1)
    if extra < 0:
        raise InvalidRule("rank", got=shape, wanted=f"at least {len(term) - 1} dims")
    return tuple(shape[at : at + extra])


def _expand(term: Term, shape: Shape, broadcast: list[int]) -> Term:
    """The term with `...` written out: loop `_0` is the innermost broadcast dim."""
    if Dim((ELLIPSIS,)) not in term:
        return term
    at = term.index(Dim((ELLIPSIS,)))
    under = _under_ellipsis(term, shape)
    written = [
        Dim((f"_{back}",)) if size == broadcast[back] else Dim(())
        for back, size in zip(range(len(under) - 1, -1, -1), under, strict=True)
    ]
    return (*term[:at], *written, *term[at + 1 :])


def _solve(terms: Sequence[Term], shapes: Sequence[Shape], sizes: dict[str, int]) -> dict[str, int]:
    """Loop sizes from those given and the dims: single loops first, then what a compound or joined dim leaves."""
    equations = []
    for term, shape in zip(terms, shapes, strict=True):
        if len(term) != len(shape):
            raise InvalidRule("rank", got=shape, wanted=f"{len(term)} dims")
        equations += list(zip(term, shape, strict=True))
    progress = True
    while progress:
        progress = False
        for dim, size in equations:
            unknown = [loop for loop in dim.loops if loop not in sizes]
            if len(unknown) == 1:
                sizes[unknown[0]] = _remainder(dim, size, sizes)
                progress = True
    for dim, size in equations:
        if missing := [loop for loop in dim.loops if loop not in sizes]:
            raise InvalidRule("loop size cannot be told", got=str(dim), wanted=f"a size for {missing[0]}")
        if dim_size(dim, sizes) != size:
            raise InvalidRule("shape contradicts the rule", where=f"dim {dim}", got=size, wanted=dim_size(dim, sizes))
    return sizes


def _remainder(dim: Dim, size: int, sizes: Mapping[str, int]) -> int:
    """What size is left for the one loop of a dim that is not known."""
    if dim.coefficients:
        factors = dict(zip(dim.loops, dim.coefficients, strict=True))
        known_reach = sum(factor * (sizes[loop] - 1) for loop, factor in factors.items() if loop in sizes)
        factor = next(factor for loop, factor in factors.items() if loop not in sizes)
        return max((size - 1 - known_reach) // factor + 1, 0)
    known = [sizes[loop] for loop in dim.loops if loop in sizes]
    if dim.joined:
        return max(size - sum(known), 0)
    product = math.prod(known)
    return size // product if product else 0


def dim_size(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Size of a dim whose loops have these sizes."""
    loops = [sizes[loop] for loop in dim.loops]
    if dim.coefficients:
        return 1 + sum(factor * (size - 1) for factor, size in zip(dim.coefficients, loops, strict=True))
    return sum(loops) if dim.joined else math.prod(loops)


def _without_ones(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """Loops of size 1 dropped from a compound, so that the next loop is its major-most."""
    if dim.joined or dim.coefficients or len(dim.loops) < 2:
        return dim
    return Dim(tuple(loop for loop in dim.loops if sizes[loop] != 1) or dim.loops[:1])


def _with_loops(operands: tuple[Term, ...], results: tuple[Term, ...], sizes: dict[str, int], pattern: Pattern) -> Rule:
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
        if name in blocked or name not in carried or sizes[name] == 1:
            kind = LoopKind.BLOCKED
        return Loop(name, sizes[name], kind, kinds.get(name, Reduction.SUM), even=name in major)

    names = dict.fromkeys(loop for dim in dims for loop in dim.loops)
    return Rule(operands, results, (*map(loop, names), *_linear_loops(pattern)), pattern)


def _linear_loops(pattern: Pattern) -> list[Loop]:
    sums = [("linear ", Reduction.SUM, group) for group in pattern.linear]
    others = [(f"commutes {kind} ", kind, group) for kind, group in pattern.commutes]
    return [
        Loop(word + "+".join(map(str, group)), 0, LoopKind.LINEAR, kind, group) for word, kind, group in sums + others
    ]
