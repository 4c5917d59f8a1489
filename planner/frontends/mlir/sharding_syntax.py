"""The syntax of shardings: `[[0], [1]]`, `partial = max[1]`, `<@mesh0, [[0]]>`."""

from __future__ import annotations

from dataclasses import dataclass

from planner.frontends.mlir.scanner import WORD, Scanner


@dataclass(frozen=True, slots=True)
class ShardingSyntax:
    """A parsed sharding that is not checked yet.

    `entries` are the mesh axes per dim. In the RFC's form (`trailing_partial`), one more entry lists the partial axes.
    """

    entries: tuple[tuple[int, ...], ...]
    at: int
    mesh: str | None = None
    partial: tuple[int, ...] = ()
    reduction: str = "sum"
    halo_sizes: tuple[int | str, ...] = ()
    offsets: tuple[int | str, ...] = ()
    trailing_partial: bool = False


def parse_sharding_attribute(scan: Scanner, *, trailing_partial: bool = True) -> ShardingSyntax:
    """Parse `<@mesh0, [[0], [1]], partial = max[1]>`, or the RFC's `<[[0], [], [1]]>` with or without a mesh."""
    at = scan.at
    scan.need("<")
    mesh = scan.symbol() if scan.peek("@") else None
    if mesh is not None:
        scan.need(",")
    entries = parse_entries(scan)
    reduction, axes = parse_partial(scan) if scan.mark(",") else ("sum", ())
    scan.need(">")
    return ShardingSyntax(entries, at, mesh, axes, reduction, trailing_partial=trailing_partial)


def parse_entries(scan: Scanner) -> tuple[tuple[int, ...], ...]:
    """Parse `[[0, 1], []]`; dims without a list are whole, so `[]` is replicated."""
    return tuple(scan.parse_list("[", lambda: parse_axes(scan), "]"))


def parse_axes(scan: Scanner) -> tuple[int, ...]:
    return tuple(scan.parse_list("[", scan.integer, "]"))


def parse_partial(scan: Scanner) -> tuple[str, tuple[int, ...]]:
    """Parse `partial = max[1]`."""
    if not scan.word("partial"):
        raise scan.error("syntax", wanted="partial = kind[axes]")
    scan.need("=")
    reduction = scan.expect(WORD, "a reduction")
    return reduction, parse_axes(scan)


def parse_sharding(scan: Scanner) -> ShardingSyntax:
    """Parse `@m split_axes = [[0]] partial = sum[1] halo_sizes = [1, 2] sharded_dims_offsets = [0, 2, 4]`."""
    at = scan.at
    mesh = scan.symbol()
    if not scan.word("split_axes"):
        raise scan.error("syntax", wanted="split_axes = [[...]]")
    scan.need("=")
    entries = parse_entries(scan)
    reduction, axes = parse_partial(scan) if scan.peek("partial") else ("sum", ())
    return ShardingSyntax(
        entries, at, mesh, axes, reduction, _sizes(scan, "halo_sizes"), _sizes(scan, "sharded_dims_offsets")
    )


def _sizes(scan: Scanner, key: str) -> tuple[int | str, ...]:
    """Parse `key = [1, %a]` if the key is here; return an empty list if not."""
    if not scan.word(key):
        return ()
    scan.need("=")
    return parse_numbers(scan)


def parse_numbers(scan: Scanner) -> tuple[int | str, ...]:
    """Parse `[1, %a]`: numbers and names of values."""
    return tuple(scan.parse_list("[", lambda: scan.value() if scan.peek("%") else scan.integer(), "]"))
