"""Modules from the meta device: shards have the unsharded module's initial values, and checkpoints change plans."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

from tests.testing.gloo_modules import run_module
from tests.testing.torch_meta_run import MetaRun

pytestmark = pytest.mark.frameworks("torch")


@pytest.mark.slow
def test_shards_are_initialized_by_seed_and_a_run_goes_on_under_another_plan(tmp_path: Path) -> None:
    """Four processes: FSDP over four devices, then FSDP and tensor parallelism on 2x2, from its sharded checkpoint."""
    runs = [MetaRun(**each) for (each,) in run_module("tests.testing.torch_meta_run", tmp_path, "dp=4")]
    assert len(runs) == 4
    for each in runs:
        assert each.is_same
        assert each.share < 1
        assert each.losses == pytest.approx(each.unsharded, rel=1e-6)
        assert each.losses[-1] < each.losses[0]
        assert each.is_loaded
        assert "words.weight: tensor of the module (got the meta device; wanted values: initialize(seed)" in each.error
        assert "words.weight: tensor not initialized" in each.unset
