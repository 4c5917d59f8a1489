"""Rule notation: einsum letters with einops brackets.

    b m k, k n -> b m n                 loops are words; one comma-separated term per operand and result
    b s (h d) -> b h s d                a compound dim: the product of its loops, major first
    b {p|z|q} -> b z                    a joined dim: the concatenation of its loops
    c (2*y+r), f c r -> f y             a window, of operands only: a sum of loops with coefficients, major first
    c (2*y+r-3), f c r -> f y           a window with padding: it begins 3 before the dim and may end beyond it
    1 n, m n -> m n                     1 is a dim of size one that broadcasts
    ... k, k -> ... k                   ... stands for leading dims, right-aligned; a 1 under them broadcasts
    m k -> m; max k; blocked m          modifiers: reduction kind of a loop, loops that may not be split,
    m -> n; opaque m n                  loops of an op that nothing is known of: split where its annotations say so
    x y, x y -> x y; linear 0+1         operands in which the op is linear (jointly; several groups by comma)
    x y, x y -> x y; commutes max 0+1   the same for another reduction: the op of maxima is the maximum of the op
    s, t -> s; blocked t; ring s t 1    blocks of t may pass round the devices that split s, once
    b {p|z|q} -> b z; size p=3          a size that cannot be inferred from the shapes; [] is a term without dims

A loop that is absent from every result is a *reduction* loop, a blocked loop may not be split, an opaque one sums
nothing up, and all others are *parallel* (iterator types of the MLIR mesh dialect). Parsing needs no sizes;
`planner.ir.indexing` binds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from planner.errors import InvalidRule
from planner.ir.sharding import Reduction

ELLIPSIS = "..."
MAX_LENGTH = 4096
_MODIFIERS = ("reductions", "blocked", "opaque", "linear", "sizes", "commutes", "rings")
_LETTER = re.compile(r"[a-z][a-z0-9_]{0,15}", re.ASCII)
_DIM = re.compile(r"\.\.\.|\([^(){}]*\)|\{[^(){}]*\}|[^\s(){}]+")


@dataclass(frozen=True, slots=True)
class Dim:
    """One tensor dim: the product of its loops (none: a literal 1), or their concatenation when `joined`.

    With `coefficients` it is a window: it reads elements sum(coefficient * loop) - padding of the dim. Beyond the ends
    of the dim it reads the op's padding; where `padding` is None it never reaches beyond them.
    """

    loops: tuple[str, ...]
    joined: bool = False
    coefficients: tuple[int, ...] = ()
    padding: int | None = None

    def __str__(self) -> str:
        if self.coefficients:
            terms = zip(self.coefficients, self.loops, strict=True)
            sums = "+".join(loop if factor == 1 else f"{factor}*{loop}" for factor, loop in terms)
            return f"({sums})" if self.padding is None else f"({sums}-{self.padding})"
        if self.joined:
            return "{" + "|".join(self.loops) + "}"
        if len(self.loops) == 1:
            return self.loops[0]
        return f"({' '.join(self.loops)})" if self.loops else "1"


Term = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class RingLoops:
    """The loop that stays where it is split, the one whose blocks may pass by all parts of it, and how many times."""

    stays: str
    travels: str
    rounds: int

    def __str__(self) -> str:
        return f"{self.stays} {self.travels} {self.rounds}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed rule whose loops have no sizes yet."""

    operands: tuple[Term, ...]
    results: tuple[Term, ...]
    reductions: tuple[tuple[str, Reduction], ...] = ()
    blocked: tuple[str, ...] = ()
    linear: tuple[tuple[int, ...], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    commutes: tuple[tuple[Reduction, tuple[int, ...]], ...] = ()
    opaque: tuple[str, ...] = ()
    rings: tuple[RingLoops, ...] = ()

    def __str__(self) -> str:
        def terms(side: tuple[Term, ...]) -> str:
            return ", ".join(" ".join(map(str, term)) or "[]" for term in side)

        text = f"{terms(self.operands)} -> {terms(self.results)}".strip()
        text += "".join(f"; {kind} {loop}" for loop, kind in self.reductions)
        text += f"; blocked {' '.join(self.blocked)}" if self.blocked else ""
        text += f"; opaque {' '.join(self.opaque)}" if self.opaque else ""
        text += "".join(f"; ring {ring}" for ring in self.rings)
        text += "".join(f"; size {loop}={size}" for loop, size in self.sizes)
        groups = ", ".join("+".join(map(str, group)) for group in self.linear)
        text += f"; linear {groups}" if groups else ""
        return text + "".join(f"; commutes {kind} {'+'.join(map(str, group))}" for kind, group in self.commutes)


@lru_cache(maxsize=4096)
def parse_rule(text: str) -> Pattern:
    """Parse rule notation. Raises InvalidRule naming the rule and the part that is wrong."""
    try:
        return _parse(text)
    except InvalidRule as error:
        raise error.at(f"rule {text!r}") from None


def _parse(text: str) -> Pattern:
    if len(text) > MAX_LENGTH:
        raise InvalidRule("rule too long", got=len(text), wanted=f"at most {MAX_LENGTH} characters")
    body, *modifiers = text.split(";")
    if body.count("->") != 1:
        raise InvalidRule("no single '->'", wanted="operands -> results")
    left, right = body.split("->")
    operands = tuple(map(_term, left.split(","))) if left.strip() else ()
    results = tuple(map(_parse_result_term, right.split(",")))
    loops = {loop for term in (*operands, *results) for dim in term for loop in dim.loops} - {ELLIPSIS}
    modifier_values = _parse_modifiers(modifiers, len(operands), loops)
    pattern = Pattern(operands, results, **{key: tuple(values) for key, values in modifier_values.items()})
    _check_rings(pattern)
    return pattern


def _parse_modifiers(modifiers: list[str], operands: int, loops: set[str]) -> dict[str, list[Any]]:
    modifier_values: dict[str, list[Any]] = {key: [] for key in _MODIFIERS}
    for modifier in modifiers:
        word, *rest = modifier.split() or [""]
        if word == "linear":
            modifier_values["linear"] += [_group(group, operands) for group in " ".join(rest).split(",")]
        elif word == "commutes":
            kind, groups = _commuting(rest), " ".join(rest[1:]).split(",")
            modifier_values["commutes"] += [(kind, _group(group, operands)) for group in groups]
        elif word == "size":
            modifier_values["sizes"] += [_size(piece, loops) for piece in rest]
        elif word == "ring":
            modifier_values["rings"].append(_ring(rest, loops))
        elif word in ("blocked", "opaque"):
            modifier_values[word] += [_check_loop(loop, loops) for loop in rest]
        elif word in set(Reduction):
            modifier_values["reductions"] += [(_check_loop(loop, loops), Reduction(word)) for loop in rest]
        else:
            words = f"commutes, blocked, opaque, linear, ring, size, {', '.join(Reduction)}"
            raise InvalidRule("unknown modifier", got=word, wanted=words)
    for key in ("reductions", "sizes"):
        _check_once([loop for loop, _ in modifier_values[key]], key)
    return modifier_values


def _check_rings(pattern: Pattern) -> None:
    if len(pattern.rings) > 1:
        raise InvalidRule("rings", got=", ".join(map(str, pattern.rings)), wanted="one at most")
    for ring in pattern.rings:
        if ring.travels not in pattern.blocked:
            raise InvalidRule("loop that travels", got=ring.travels, wanted="a blocked loop")
        dims = (dim for term in (*pattern.operands, *pattern.results) for dim in term)
        if shared := [str(dim) for dim in dims if len(dim.loops) > 1 and {ring.stays, ring.travels} & {*dim.loops}]:
            raise InvalidRule("loop of a ring shares a dim", got=shared[0], wanted="a dim of its own")


def _ring(words: list[str], loops: set[str]) -> RingLoops:
    if len(words) != 3 or not re.fullmatch(r"[1-9]", words[2], re.ASCII) or words[0] == words[1]:
        raise InvalidRule("ring", got=" ".join(words), wanted="a loop that stays, one that travels, and 1 to 9 rounds")
    return RingLoops(_check_loop(words[0], loops), _check_loop(words[1], loops), int(words[2]))


def _check_once(loops: list[str], key: str) -> None:
    if len(set(loops)) != len(loops):
        raise InvalidRule(f"modifier repeated for a loop ({key})", got=loops, wanted="each loop once")


def _check_loop(loop: str, loops: set[str]) -> str:
    if loop not in loops:
        raise InvalidRule("modifier names no loop", got=loop, wanted=f"one of {sorted(loops)}")
    return loop


def _size(text: str, loops: set[str]) -> tuple[str, int]:
    loop, _, size = text.partition("=")
    if not re.fullmatch(r"\d{1,13}", size, re.ASCII):
        raise InvalidRule("size modifier", got=text, wanted="loop=size")
    return _check_loop(loop, loops), int(size)


def _term(text: str) -> Term:
    if text.strip() == "[]":
        return ()
    dims = tuple(_dim(piece) for piece in _DIM.findall(text))
    if stray := _DIM.sub("", text).strip():
        raise InvalidRule("brackets do not match", got=text.strip(), wanted=f"no {stray[0]!r} left over")
    names = [loop for dim in dims for loop in dim.loops]
    if len(set(names)) != len(names):
        raise InvalidRule("loop repeated in one term", got=text.strip(), wanted="each loop once a term")
    return dims


def _parse_result_term(text: str) -> Term:
    term = _term(text)
    if windows := [str(dim) for dim in term if dim.coefficients]:
        raise InvalidRule("window in a result", got=windows[0], wanted="loops, each once: a projected permutation")
    return term


def _dim(piece: str) -> Dim:
    if piece == "1":
        return Dim(())
    if piece == ELLIPSIS:
        return Dim((ELLIPSIS,))
    joined = piece[0] == "{"
    inner = piece[1:-1] if piece[0] in "({" else piece
    if not joined and set(inner) & set("+*-"):
        return _window(inner)
    loops = tuple(inner.split("|" if joined else None))
    loops = tuple(_letter(loop.strip()) for loop in loops)
    return Dim(loops, joined)


def _letter(loop: str) -> str:
    if not _LETTER.fullmatch(loop):
        raise InvalidRule("not a loop name", got=loop, wanted="a-z, 0-9, _ beginning with a letter")
    return loop


def _window(text: str) -> Dim:
    """Parse the loops of a window, their coefficients and its padding from text such as `2*y+r-3`."""
    loops, coefficients = [], []
    padding = re.fullmatch(r"(.*)-\s*(\d{1,9})\s*", text, re.ASCII)
    for piece in (padding[1] if padding else text).split("+"):
        factor, star, loop = piece.rpartition("*")
        if star and not re.fullmatch(r"\s*[1-9]\d{0,5}\s*", factor, re.ASCII):
            raise InvalidRule("coefficient of a window", got=factor.strip(), wanted="a whole number of 1 or more")
        loops.append(_letter(loop.strip()))
        coefficients.append(int(factor) if star else 1)
    return Dim(tuple(loops), coefficients=tuple(coefficients), padding=int(padding[2]) if padding else None)


def _commuting(words: list[str]) -> Reduction:
    """Return the reduction of a `commutes` modifier. Sums are spelled `linear` instead."""
    kinds = [kind for kind in Reduction if kind is not Reduction.SUM]
    if not words or words[0] not in kinds:
        raise InvalidRule("reduction that commutes", got=" ".join(words), wanted=f"{', '.join(kinds)} (sum: linear)")
    return Reduction(words[0])


def _group(text: str, operands: int) -> tuple[int, ...]:
    pieces = [piece.strip() for piece in text.split("+")]
    if not all(re.fullmatch(r"\d{1,4}", piece) and int(piece) < operands for piece in pieces):
        raise InvalidRule("linear group", got=text.strip(), wanted=f"operand numbers below {operands}")
    return tuple(int(piece) for piece in pieces)
