"""A module trains by its plan's program with one process per device as it trains unsharded."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

import torch

import planner.torch
from planner.errors import InvalidMesh
from tests.testing.torch_steps import STEPS, run_over_gloo

pytestmark = pytest.mark.frameworks("torch")

NEAR = 1e-6


def test_losses_parameters_and_buffers_are_those_of_the_unsharded_module(tmp_path: Path) -> None:
    """Four processes, under a memory limit that no replicated layout meets."""
    answers = run_over_gloo(tmp_path, "dp=2,tp=2")
    assert len(answers) == 4
    for planned, whole, worst in answers:
        assert planned == pytest.approx(whole, rel=NEAR)
        assert len(planned) == STEPS
        assert planned[-1] < planned[0]
        assert worst < 10 * NEAR


def test_processes_other_than_the_devices_are_refused() -> None:
    with pytest.raises(InvalidMesh, match="no process group"):
        planner.torch.parallelize(torch.nn.Linear(2, 2), (torch.zeros(2, 2),), "2")
