"""Problems in the JSON format of the IOPDDL contest: a strict reader, and an evaluation on the document itself."""

from __future__ import annotations

from solvers.iopddl.evaluation import evaluate_document
from solvers.iopddl.form import build_problem
from solvers.iopddl.reader import read_document, read_problem

__all__ = ["build_problem", "evaluate_document", "read_document", "read_problem"]
