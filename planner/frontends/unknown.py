"""Operations without a row: planned by a rule that splits none of their dims, and named in a warning."""

from __future__ import annotations

from collections.abc import Iterable

from planner.model.sharding import Shape


class UnknownOpWarning(UserWarning):
    """Operations without a row are planned replicated."""


def rule(operands: Iterable[Shape], results: Iterable[Shape]) -> str:
    """Notation in which no two dims have a loop in common, and none may be split.

    rule([(2, 3)], [(3,)]) is "u0 u1 -> u2; blocked u0 u1 u2".
    """
    names: list[str] = []

    def term(shape: Shape) -> str:
        fresh = [f"u{len(names) + i}" for i in range(len(shape))]
        names.extend(fresh)
        return " ".join(fresh) or "[]"

    read, made = (", ".join(map(term, shapes)) for shapes in (operands, results))
    return f"{read} -> {made}" + (f"; blocked {' '.join(names)}" if names else "")
