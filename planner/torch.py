"""Plan a PyTorch module for a mesh, and get DTensor placements by name."""

from planner.integrations.torch import TorchPlan, plan

__all__ = ["TorchPlan", "plan"]
