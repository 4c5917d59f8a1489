"""Problems in the JSON format of the IOPDDL contest: a strict reader."""

from __future__ import annotations

from solvers.iopddl.form import build_problem
from solvers.iopddl.reader import read_document, read_problem

__all__ = ["build_problem", "read_document", "read_problem"]
