"""The versions that determine a plan and so are part of its id.

OR-Tools is among them: another simplex or search may end at another of several optima. numpy and numba are not: the
solver decides by integers, draws its random numbers itself, and plans alike with numpy 2.2 and 2.4, numba 0.62 and
0.68, with AVX-512 and without AVX. If that ceases to hold, tests/test_golden_plans.py fails on the machine that sees
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from planner.choose import cost
from planner.version import VERSION

Versions = Mapping[str, int | str]
ABSENT = "none"


def current_versions() -> dict[str, int | str]:
    """Return the installed versions of the package, the cost model and OR-Tools."""
    return {"cost_model": cost.VERSION, "ortools": _ortools_version(), "shardplan": VERSION}


def versions_text(versions: Versions) -> str:
    """Return versions as text: `cost_model 5, ortools 9.15.6755, shardplan 0.1.0`."""
    return ", ".join(f"{name} {versions[name]}" for name in sorted(versions))


@cache
def _ortools_version() -> str:
    """Return OR-Tools' version without importing it, which takes a second; `none` on a machine that only runs plans."""
    try:
        return version("ortools")
    except PackageNotFoundError:
        return ABSENT
