"""The upstream tools: mlir-opt 19 for the mesh dialect and mlir-opt 22 for shard."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from planner.export.mlir import Dialect

TOOLS = {Dialect.MESH: "mlir-opt-19", Dialect.SHARD: "mlir-opt-22"}
PROPAGATION = "--pass-pipeline=builtin.module(func.func(sharding-propagation))"


def upstream(dialect: Dialect, texts: list[str], *options: str) -> str:
    """Return mlir-opt's output for all texts, in one call; skips the test where mlir-opt is not installed."""
    tool = shutil.which(TOOLS[dialect])
    if tool is None:
        pytest.skip(f"{TOOLS[dialect]} is not installed")
    run = subprocess.run(
        [tool, "--split-input-file", *options],
        input="// -----\n".join(texts),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"},
    )
    assert run.returncode == 0, run.stderr[:2000]
    return run.stdout


def accepted(dialect: Dialect, texts: list[str]) -> None:
    """Assert that mlir-opt parses and verifies all texts."""
    upstream(dialect, texts)
