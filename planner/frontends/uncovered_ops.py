"""Ops of a framework that its table does not cover: planned replicated and named in a warning, or refused."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.errors import UnsupportedOp
from planner.ir.sharding import Shape

MAX_SHOWN_PLACES = 3


class UnknownOpWarning(UserWarning):
    """Ops without a row in a frontend's table are planned replicated."""


class NotCovered(Exception):
    """A call whose operands or attributes the rows of a table cannot express; the text says which."""


class NotExpressible(NotCovered):
    """A value that no node of a document can hold, not even that of an op planned replicated."""


def _list_of_places() -> defaultdict[str, list[str]]:
    return defaultdict(list)


@dataclass(frozen=True, slots=True)
class UncoveredOps:
    """The places of every op that the table does not cover, by the op's name."""

    replicated: defaultdict[str, list[str]] = field(default_factory=_list_of_places)
    refused: defaultdict[str, list[str]] = field(default_factory=_list_of_places)

    def report(self, graph: str, table: Iterable[str], *, framework: str) -> None:
        """Warn of the replicated ops of a graph. Raise UnsupportedOp if any op is refused.

        The error names the most frequent places; its notes hold the refused ops and the rows of the table.
        """
        if self.refused:
            shown = list_operations(self.refused)
            wanted = f"operands and attributes that the rows of planner.frontends.{framework}.op_table take"
            what = f"{framework} ops that cannot be expressed"
            error = UnsupportedOp(what, where=graph, got="; ".join(shown), wanted=wanted)
            error.add_note("refused:\n  " + "\n  ".join(shown))
            error.add_note("rows: " + ", ".join(table))
            raise error
        if self.replicated:
            shown = list_operations(self.replicated)
            text = f"{graph}: planned replicated, as no row of the table covers them: {'; '.join(shown)}"
            warnings.warn(text, UnknownOpWarning, stacklevel=4)


def unrelated_rule(operands: Iterable[Shape], results: Iterable[Shape], *, kind: str = "blocked") -> str:
    """Return the notation of a rule in which no two dims share a loop, all loops being of one kind.

    unrelated_rule([(2, 3)], [(3,)]) is "u0 u1 -> u2; blocked u0 u1 u2": no loop may be split.
    """
    names: list[str] = []

    def term(shape: Shape) -> str:
        fresh = [f"u{len(names) + i}" for i in range(len(shape))]
        names.extend(fresh)
        return " ".join(fresh) or "[]"

    left, right = (", ".join(map(term, shapes)) for shapes in (operands, results))
    return f"{left} -> {right}" + (f"; {kind} {' '.join(names)}" if names else "")


def list_operations(operations: Mapping[str, Sequence[str]]) -> list[str]:
    """Describe ops and where they are used, the most frequent first, each with its first places."""
    order = sorted(operations.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{name}, {len(places)}x at {_join_first(places)}" for name, places in order]


def _join_first(places: Sequence[str]) -> str:
    different = list(dict.fromkeys(places))
    return ", ".join(different[:MAX_SHOWN_PLACES]) + (", …" if len(different) > MAX_SHOWN_PLACES else "")
