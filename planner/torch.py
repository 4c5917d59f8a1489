"""One line for PyTorch: a module, example inputs and a mesh in; DTensor placements by name out."""

from planner.integrations.torch import TorchPlan, plan

__all__ = ["TorchPlan", "plan"]
