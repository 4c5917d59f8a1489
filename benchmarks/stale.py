"""Lists results that are older than the code they measure: `python -m benchmarks.stale`.

A result is out of date where a file of its benchmark's paths (`benchmarks/measured.py`) has changed since the result's
commit, or since that of one of its models. This only reports, it does not fail; `make bench` measures again. In a
shallow clone most commits are missing, which is reported too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measured import DIRTY, MEASURED, ROOT, changed_since
from benchmarks.record import RESULTS, count_older

SHOWN = 3
STATES = OLD, UNKNOWN, CURRENT = "old", "unknown", "current"


def report(results: Path = RESULTS, root: Path = ROOT) -> Iterator[str]:
    """Yield a line per result, out-of-date ones first; then the number of results of the current code."""
    found = {name: results / f"{name}.json" for name in MEASURED}
    lines = [_line(name, json.loads(path.read_text()), root) for name, path in found.items() if path.exists()]
    yield from sorted(lines, key=lambda line: STATES.index(line.split()[0]))
    count = sum(line.startswith(CURRENT) for line in lines)
    yield f"{count} of {len(lines)} results are of today's code; `make bench` measures anew"


def _line(name: str, result: dict[str, Any], root: Path) -> str:
    states = [_state(name, commit, root) for commit in (result["commit"], *count_older(result))]
    state, why = min(states, key=lambda each: STATES.index(each[0]))
    return f"{state:7}  {name}, measured at {result['commit']} on {result['date']}{why}"


def _state(name: str, commit: str, root: Path) -> tuple[str, str]:
    """Return whether a result is out of date, and why."""
    changed = changed_since(commit, MEASURED[name], root)
    if changed is None:
        return UNKNOWN, ": this clone has no such commit (where it is shallow: git fetch --unshallow)"
    if commit.endswith(DIRTY):
        return OLD, ": with changes that were not committed"
    if not changed:
        return CURRENT, ""
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return OLD, f": since then changed: {', '.join(changed[:SHOWN])}{more}"


def main() -> None:
    for line in report():
        print(line)


if __name__ == "__main__":
    main()
