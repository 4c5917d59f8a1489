"""A progress line that is rewritten in place, in a notebook or on a terminal; elsewhere nothing is shown.

with planner.solving_line() as on_progress:
    plan = planner.plan(graph, mesh, hardware, on_progress=on_progress)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from planner.choose.cost import PICO
from planner.planning.deadline import OnPlanProgress, PlanProgress
from planner.units import format_share, format_time
from planner.usecases.capacity_search import CapacitySearch

Show = Callable[[str], None]
EXCLUDED = {
    "layout": "as without the layout",
    "stages": "as too many stages",
    "memory": "by memory",
    "infeasible": "as infeasible",
    "bound": "as no better",
    "time": "for lack of time",
    "cancelled": "as cancelled",
}
"""What progress says of the reasons of `planner.usecases.capacity_question.SkippedCandidate`."""


@contextmanager
def solving_line(stream: TextIO | None = None) -> Iterator[OnPlanProgress]:
    """Yield an `on_progress` for `planner.plan` that shows the stage, the best step, the bound and the gap.

    `stream` is where to write; None: the notebook or terminal, if there is one.
    """
    with _line(stream) as show:

        def on_progress(now: PlanProgress) -> None:
            show(describe_progress(now))

        yield on_progress


def describe_progress(now: PlanProgress) -> str:
    """Return the progress of a plan as one line."""
    best = "none yet" if now.incumbent is None else format_time(now.incumbent * PICO)
    bound, gap = format_time(now.bound * PICO), format_share(now.gap)
    return f"{now.stage}: best step {best}, lower bound {bound}, gap {gap}, {now.elapsed_s:.1f} s"


@contextmanager
def capacity_line(stream: TextIO | None = None) -> Iterator[Callable[[CapacitySearch, int], None]]:
    """Yield a callback that shows the state of a search.

    It is the `on_start` and the `on_outcome` of `planner.usecases.capacity.search_meshes`.
    """
    with _line(stream) as show:
        yield lambda search, _number: show(f"capacity: {describe_search(search)}")


def describe_search(search: CapacitySearch) -> str:
    """Return the state of a search as one line: what is planned now, the fastest plan so far, what is excluded."""
    total = len(search.question.candidates)
    parts = [f"{len(search.outcomes) + len(search.skipped)} of {total} candidates, {search.planned_count} planned"]
    if search.running:
        parts.append(f"planning {', '.join(_name_candidate(search, number) for number in search.running)}")
    if points := search.points():
        number = min(points, key=lambda each: each[1].time_s)[0]
        step_s = search.outcomes[number].step_s or 0.0
        parts.append(f"fastest so far {_name_candidate(search, number)}, step {format_time(step_s)}")
    if excluded := search.count_excluded():
        parts.append("excluded " + ", ".join(f"{count} {EXCLUDED[reason]}" for reason, count in excluded.items()))
    return "; ".join(parts)


def _name_candidate(search: CapacitySearch, number: int) -> str:
    one = search.question.candidates[number]
    batch = search.question.graphs[one.graph].batch if len(search.question.graphs) > 1 else None
    where = f"{one.devices} {search.bounds.hardware[one.hardware].name} as {one.notation}"
    return where if batch is None else f"{where}, batch {batch}"


@contextmanager
def _line(stream: TextIO | None) -> Iterator[Show]:
    """Yield a function that replaces the text of the line. The line is cleared at the end."""
    to, width = stream or _interactive_stream(), 0

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


def _interactive_stream() -> TextIO | None:
    """Return the stream of a notebook's cell or a terminal, or None where there is neither."""
    shell = sys.modules.get("IPython")
    if shell is not None and shell.get_ipython() is not None:
        return sys.stdout
    return sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
