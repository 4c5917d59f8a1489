"""Plan a PyTorch module for a mesh: get DTensor placements by name, or a module that runs the plan's program."""

from planner.export.torch_program.modules import PlannedModule
from planner.export.torch_program.run_trace import ProgramTrace
from planner.integrations.torch import TorchPlan, parallelize, plan

__all__ = ["PlannedModule", "ProgramTrace", "TorchPlan", "parallelize", "plan"]
