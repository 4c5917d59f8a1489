"""Programs as Python text for torch.distributed: what every process does, op by op and collective by collective."""

from __future__ import annotations

from planner.export.torch_program.programs import print_torch

__all__ = ["print_torch"]
