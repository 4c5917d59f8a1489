"""Tables on a terminal, all in one style."""

from __future__ import annotations

from collections.abc import Container, Iterable

from rich.table import Table


def build_table(title: str, *columns: str, left: Container[int] = (0,)) -> Table:
    """Return a table without rows; columns are aligned right but for those numbered in `left`."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number in left else "right", overflow="fold")
    return table


def add_rows(table: Table, rows: Iterable[tuple[object, ...]], most: int) -> Table:
    """Add at most so many rows, and say how many more there are; return the table."""
    listed = list(rows)
    for row in listed[:most]:
        table.add_row(*map(str, row))
    if len(listed) > most:
        table.add_row(f"and {len(listed) - most} more")
    return table
