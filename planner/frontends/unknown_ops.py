"""Operations without a row: planned by a rule that splits none of their dims, and named in a warning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.ir.sharding import Shape

SHOWN_PLACES = 3


class UnknownOpWarning(UserWarning):
    """Operations without a row are planned replicated."""


def replicated_rule(operands: Iterable[Shape], results: Iterable[Shape]) -> str:
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


def list_operations(operations: Mapping[str, Sequence[str]], before_places: str) -> list[str]:
    """Operations and where they stand, the most frequent first, each with its first places."""
    order = sorted(operations.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{name}, {len(places)}x{before_places}{_first_places(places)}" for name, places in order]


def _first_places(places: Sequence[str]) -> str:
    different = list(dict.fromkeys(places))
    return ", ".join(different[:SHOWN_PLACES]) + (", …" if len(different) > SHOWN_PLACES else "")
