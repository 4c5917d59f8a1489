"""One line that tells how far a search is, rewritten in place: in a notebook or on a terminal, nowhere else.

with planner.solving_line() as on_progress:
    plan = planner.plan(graph, mesh, hardware, on_progress=on_progress)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import solvers
from planner.choose.cost import PICO
from planner.units import format_share, format_time
from planner.usecases.capacity_search import CapacitySearch

Show = Callable[[str], None]


@contextmanager
def solving_line(stream: TextIO | None = None) -> Iterator[Callable[[solvers.Progress], None]]:
    """`on_progress` of `planner.plan`: the best step, the bound and the gap. `stream`: where, else where a person
    looks."""
    with _line(stream) as show:

        def on_progress(now: solvers.Progress) -> None:
            best = "none yet" if now.incumbent is None else format_time(now.incumbent * PICO)
            bound, gap = format_time(now.bound * PICO), format_share(now.gap)
            show(f"planning: best step {best}, lower bound {bound}, gap {gap}, {now.elapsed_s:.1f} s")

        yield on_progress


@contextmanager
def capacity_line(stream: TextIO | None = None) -> Iterator[Callable[[CapacitySearch, int], None]]:
    """`on_outcome` of `planner.usecases.capacity.search_meshes`: how many candidates are done."""
    with _line(stream) as show:

        def on_outcome(found: CapacitySearch, _number: int) -> None:
            done, total = len(found.outcomes) + len(found.skipped), len(found.question.candidates)
            show(f"capacity: {done} of {total} candidates, {found.planned_count} planned")

        yield on_outcome


@contextmanager
def _line(stream: TextIO | None) -> Iterator[Show]:
    """What is shown takes the place of what was; in the end the line is empty again."""
    to, width = stream or _watched(), 0

    def show(text: str) -> None:
        nonlocal width
        if to is not None:
            to.write("\r" + text.ljust(width))
            to.flush()
            width = len(text)

    try:
        yield show
    finally:
        if to is not None and width:
            to.write("\r" + " " * width + "\r")
            to.flush()


def _watched() -> TextIO | None:
    """The stream that a person looks at: that of a notebook's cell, or a terminal."""
    shell = sys.modules.get("IPython")
    if shell is not None and shell.get_ipython() is not None:
        return sys.stdout
    return sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
