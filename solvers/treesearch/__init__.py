"""Search by exact re-optimisation of random induced trees: for problems of thousands of nodes under a limit."""

from __future__ import annotations

from solvers.treesearch.search import TreeSearch

__all__ = ["TreeSearch"]
