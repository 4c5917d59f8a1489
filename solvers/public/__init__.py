"""The public form of the problem: the JSON of the IOPDDL contest, read strictly, and the worth of a choice on it."""

from __future__ import annotations

from solvers.public.evaluation import evaluate_document
from solvers.public.form import problem_from
from solvers.public.reading import read_document, read_problem

__all__ = ["evaluate_document", "problem_from", "read_document", "read_problem"]
