"""Progress of long work on a terminal; nothing is shown where standard error is not one."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console

import solvers
from planner.planning.deadline import Deadline, OnPlanProgress, ProgressReporter
from planner.progress import describe_progress, describe_search
from planner.units import format_share
from planner.usecases.capacity_search import CapacitySearch


@contextmanager
def show_plan_progress() -> Iterator[OnPlanProgress]:
    """Yield a callback that shows the stage, incumbent, bound, gap and elapsed seconds of a plan."""
    with _status_line() as show:
        yield lambda state: show(describe_progress(state))


@contextmanager
def report_progress(deadline: Deadline) -> Iterator[ProgressReporter]:
    """Yield a reporter, with the deadline of the command, that shows its stages."""
    with show_plan_progress() as on_progress:
        yield ProgressReporter(deadline, on_progress)


@contextmanager
def show_solve_progress() -> Iterator[Callable[[solvers.Progress], None]]:
    """Yield a callback that shows the progress on an IOPDDL problem, whose costs have no unit."""
    with _status_line() as show:

        def on_progress(state: solvers.Progress) -> None:
            best = "none yet" if state.incumbent is None else f"{state.incumbent:,}"
            show(f"solving: best {best}, bound {state.bound:,}, gap {format_share(state.gap)}, {state.elapsed_s:.1f} s")

        yield on_progress


@contextmanager
def show_capacity_progress() -> Iterator[Callable[[CapacitySearch, int], None]]:
    """Yield a callback that shows which meshes are planned, the fastest plan so far, and what is excluded."""
    with _status_line() as show:
        show("computing lower bounds")
        yield lambda search, _number: show(describe_search(search))


@contextmanager
def show_sweep_progress() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a callback that shows the state of a search on a server."""
    with _status_line() as show:
        yield lambda sweep: show(_describe_sweep(sweep))


def _describe_sweep(sweep: Mapping[str, Any]) -> str:
    state = sweep["progress"]
    if state is None:
        return f"the search is {sweep['status']}"
    running = f"; planning {', '.join(state['running'])}" if state["running"] else ""
    return f"{state['decided']} of {state['candidates']} candidates decided, {state['planned']} planned{running}"


@contextmanager
def _status_line() -> Iterator[Callable[[str], None]]:
    console = Console(stderr=True, highlight=False)
    with _silence_libraries(), console.status("preparing (the first run compiles the solver)") as status:
        yield status.update


@contextmanager
def show_run_progress(what: str, units: str = "instructions") -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that shows how many instructions, or other units, have run."""
    console = Console(stderr=True, highlight=False)
    with console.status(what) as status:
        yield lambda done, total: status.update(f"{what}: {done} of {total} {units}")


@contextmanager
def _silence_libraries() -> Iterator[None]:
    """Redirect to standard error what a solver's library prints, because standard output belongs to the command.

    Libraries in C write to the descriptor and not to `sys.stdout`, so the descriptor is replaced.
    """
    sys.stdout.flush()
    stdout_copy = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C's buffers still hold goes to standard error too
        os.dup2(stdout_copy, 1)
        os.close(stdout_copy)
