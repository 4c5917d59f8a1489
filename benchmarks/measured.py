"""The files that each benchmark measures, and their last commit, which tell whether a result is out of date."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MODEL = ("planner/ir", "planner/ops", "planner/reshard")
RUNNING = (*MODEL, "planner/spmd", "planner/rewrite", "planner/run")
SOLVING = (*MODEL, "planner/choose", "solvers")
PLANNING = (*SOLVING, "planner/planning/folded_solve.py", "planner/judge", "planner/pipeline.py", "planner/rewrite")
PARALLELIZING = (*PLANNING, "planner/frontends/torch", "planner/export", "planner/integrations")
ZOO = ("planner/frontends/zoo",)

MEASURED: dict[str, tuple[str, ...]] = {
    "capacity": (
        *PLANNING,
        *ZOO,
        "planner/usecases/capacity.py",
        "planner/usecases/capacity_bounds.py",
        "planner/usecases/capacity_question.py",
        "planner/usecases/capacity_search.py",
    ),
    "capacity_stages": (*PLANNING, *ZOO, "planner/pipeline_stages", "planner/usecases", "api/cli/capacity.py"),
    "chaos_kill": ("api",),
    "check": (*PLANNING, "planner/usecases/check.py"),
    "collective_costs": ("planner/choose/hardware",),
    "conformance": (*RUNNING, "planner/frontends/mlir"),
    "convnets": (*PLANNING, "planner/run"),
    "dialect_differential": (*RUNNING, "planner/frontends/mlir", "planner/reshard", "planner/spmd"),
    "dialect_documents": ("planner/frontends/mlir", "planner/spmd"),
    "dialect_text": (*RUNNING, "planner/frontends/mlir", "planner/export/mlir", "planner/spmd"),
    "execution": RUNNING,
    "failover": ("api",),
    "fault_injection": ("api",),
    "folding": (*SOLVING, *ZOO),
    "fresh": ("Makefile", "deploy/set_up.py", "pyproject.toml", "requirements.lock", "tests"),
    "fuzz_service": ("api",),
    "headline": (*PLANNING, "planner/run", "api/cli/plan.py"),
    "jax_models": (*PLANNING, "planner/frontends/stablehlo"),
    "local_compute": (*RUNNING, "planner/usecases/calibrate.py", "planner/choose"),
    "mesh_scaling": (*PLANNING, *ZOO),
    "micro_batches": (*PLANNING, "planner/run", *ZOO),
    "model_zoo_coverage": ("planner/frontends",),
    "models": (*PLANNING, "planner/frontends/torch", "planner/frontends/zoo"),
    "mutants": ("planner/choose", *RUNNING, "solvers", "tests"),
    "op_times": ("planner/choose/hardware",),
    "overlap": ("planner/choose/hardware",),
    "pipeline": (*PLANNING, *ZOO, "planner/pipeline_stages"),
    "pipeline_contests": ("benchmarks/pipeline_contests.py",),
    "pipeline_exhaustive": (*PLANNING, "planner/pipeline_stages"),
    "plan_accounting": (*PLANNING, "planner/run"),
    "predicted_steps": (*ZOO, *MODEL, "planner/choose", "planner/judge", "planner/rewrite", "planner/usecases"),
    "published_steps": (*ZOO, *MODEL, "planner/choose", "planner/judge", "planner/rewrite", "planner/usecases/steps"),
    "recompute": (*PLANNING, *ZOO),
    "report": ("planner/documents", "planner/export/report"),
    "reshard": ("planner/choose", *RUNNING),
    "scaling_out": ("api",),
    "service": ("api",),
    "solver": ("solvers",),
    "solver_cross_cuts": ("solvers",),
    "solver_deterministic": ("solvers",),
    "solver_synthetic": ("solvers",),
    "suite_times": ("tests",),
    "tenants": ("api",),
    "time_limits": (*PLANNING, "planner/planning", "planner/usecases", "planner/run", "api/cli", *ZOO),
    "torch_layers": (*RUNNING, "planner/frontends"),
    "torch_overhead": PARALLELIZING,
    "torch_programs": (*RUNNING, "planner/export"),
    "torch_training": PARALLELIZING,
    "training_parity": (*RUNNING, *ZOO, "planner/export"),
    "vision_model_coverage": ("planner/frontends",),
    "zoo": (*PLANNING, *ZOO),
}
"""By the name of the result: the files and folders on which its figures depend."""

DIRTY = "-dirty"
UNKNOWN = "unknown"


def measured_commit(paths: Sequence[str], root: Path = ROOT) -> str:
    """Return the commit that is checked out, with `-dirty` where files of these paths differ from it."""
    commit, changed = git(root, "rev-parse", "--short", "HEAD"), git(root, "status", "--porcelain", "--", *paths)
    return UNKNOWN if commit is None else commit.strip() + (DIRTY if changed else "")


def changed_since(commit: str, paths: Sequence[str], root: Path = ROOT) -> list[str] | None:
    """Return the files of these paths that changed since a commit; None where the clone does not have the commit."""
    found = git(root, "diff", "--name-only", commit.removesuffix(DIRTY), "--", *paths)
    return None if found is None else found.splitlines()


def git(root: Path, *words: str) -> str | None:
    """Return git's output, None where it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout
