"""Search by exact re-optimisation of random induced trees: for problems of thousands of nodes under a limit."""

from __future__ import annotations

from solvers.tree_lns.search import TreeLns

__all__ = ["TreeLns"]
