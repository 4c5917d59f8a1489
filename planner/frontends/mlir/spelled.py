"""Shardings as texts give them: `[[0], [1]]`, `partial = max[1]`, `<@mesh0, [[0]]>`."""

from __future__ import annotations

from dataclasses import dataclass

from planner.frontends.mlir.scanner import WORD, Scanner


@dataclass(frozen=True, slots=True)
class Spelled:
    """A sharding as the text gives it, before anything of it is checked.

    `entries` are the lists per dim; in the RFC's form (`trailing_partial`) entry number rank is the partial axes.
    """

    entries: tuple[tuple[int, ...], ...]
    at: int
    mesh: str | None = None
    partial: tuple[int, ...] = ()
    reduction: str = "sum"
    halo_sizes: tuple[int | str, ...] = ()
    offsets: tuple[int | str, ...] = ()
    trailing_partial: bool = False


def parse_spelled(scan: Scanner) -> Spelled:
    """`<@mesh0, [[0], [1]], partial = max[1]>`, or the RFC's `<[[0], [], [1]]>`."""
    at = scan.at
    scan.need("<")
    mesh = scan.symbol() if scan.sees("@") else None
    if mesh is not None:
        scan.need(",")
    entries = parse_entries(scan)
    reduction, axes = parse_partial(scan) if scan.mark(",") else ("sum", ())
    scan.need(">")
    return Spelled(entries, at, mesh, axes, reduction, trailing_partial=mesh is None)


def parse_entries(scan: Scanner) -> tuple[tuple[int, ...], ...]:
    """`[[0, 1], []]`: at least one list."""
    at = scan.at
    scan.need("[")
    found = []
    while not scan.mark("]"):
        if found and not scan.mark(","):
            raise scan.wrong("syntax", wanted="',' or ']'")
        found.append(parse_axes(scan))
    if not found:
        raise scan.wrong("no lists of axes", at=at, wanted="at least one: [[]] is replicated")
    return tuple(found)


def parse_axes(scan: Scanner) -> tuple[int, ...]:
    scan.need("[")
    found: list[int] = []
    while not scan.mark("]"):
        if found and not scan.mark(","):
            raise scan.wrong("syntax", wanted="',' or ']'")
        found.append(scan.integer())
    return tuple(found)


def parse_partial(scan: Scanner) -> tuple[str, tuple[int, ...]]:
    """`partial = max[1]`."""
    if not scan.word("partial"):
        raise scan.wrong("syntax", wanted="partial = kind[axes]")
    scan.need("=")
    reduction = scan.expect(WORD, "a reduction")
    return reduction, parse_axes(scan)
