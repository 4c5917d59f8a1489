"""Large-neighbourhood search by exact re-optimisation of random induced trees, for thousands of nodes with a limit."""

from __future__ import annotations

from solvers.tree_lns.search import TreeLns

__all__ = ["TreeLns"]
