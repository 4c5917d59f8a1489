"""Progress of long work on a terminal; nothing is shown where standard error is not one."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

import solvers
from planner.choose.cost import PICO
from planner.units import format_share, format_time


@contextmanager
def show_solve_progress() -> Iterator[Callable[[solvers.Progress], None]]:
    """Yield a callback that shows incumbent, bound, gap and elapsed seconds of a plan's solve."""
    with _incumbent_printer(lambda cost: format_time(cost * PICO)) as show:
        yield show


@contextmanager
def show_choice_progress() -> Iterator[Callable[[solvers.Progress], None]]:
    """Yield a callback that shows the same of a bare choice problem, whose costs have no unit."""
    with _incumbent_printer(lambda cost: f"{cost:,}") as show:
        yield show


@contextmanager
def _incumbent_printer(shown: Callable[[int], str]) -> Iterator[Callable[[solvers.Progress], None]]:
    console = Console(stderr=True, highlight=False)
    with _silence_libraries(), console.status("preparing (the first run compiles the solver)") as status:

        def show(now: solvers.Progress) -> None:
            best = "none yet" if now.incumbent is None else shown(now.incumbent)
            gap, seconds = format_share(now.gap), now.elapsed_s
            status.update(f"solving: best {best}, bound {shown(now.bound)}, gap {gap}, {seconds:.1f} s")

        yield show


@contextmanager
def show_run_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that shows how many instructions have run."""
    console = Console(stderr=True, highlight=False)
    with console.status(what) as status:
        yield lambda done, total: status.update(f"{what}: {done} of {total} instructions")


@contextmanager
def _silence_libraries() -> Iterator[None]:
    """Redirect to standard error what a solver's library prints, because standard output belongs to the command."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
