"""The version of the package, which pyproject.toml reads and which is part of the ids of plans.

Raise it whenever the same request returns another plan (tests/test_golden_plans.py checks this): after a release to the
next version with `.dev1`, then `.dev2`, and so on.
"""

from __future__ import annotations

VERSION = "0.1.0"
