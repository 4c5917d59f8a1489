"""The version of the package, said once: pyproject.toml reads it here, and so do plans, whose ids it is part of.

Raise it whenever the same question gets another plan (tests/test_golden_plans.py sees to it): after a release to the
next one with `.dev1`, then `.dev2`, and so on.
"""

from __future__ import annotations

VERSION = "0.1.0"
