"""The versions of what plans: with the question they determine the plan, so they are part of its id.

numpy and numba are not among them. What the solver adds up and compares in them are whole numbers, or floats by fixed
sequences of IEEE operations, and it draws its random numbers itself: their versions change how long a plan takes, not
which plan it is (tests/test_golden_plans.py, on whatever is installed). OR-Tools is: another simplex or search may end
at another of several optima.
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
    """Of the package, the cost model and OR-Tools, as they are here."""
    return {"cost_model": cost.VERSION, "ortools": _ortools_version(), "shardplan": VERSION}


def versions_text(versions: Versions) -> str:
    """`cost_model 5, ortools 9.15.6755, shardplan 0.1.0`."""
    return ", ".join(f"{name} {versions[name]}" for name in sorted(versions))


@cache
def _ortools_version() -> str:
    """Without importing it, which takes a second. A machine that only reads and runs plans may lack it: `none`."""
    try:
        return version("ortools")
    except PackageNotFoundError:
        return ABSENT
