"""The modules in which faults are planted, the tests of each module, and a random sample of faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.source_faults import KINDS, Fault, changes, faults

ROOT = Path(__file__).resolve().parents[1]

TESTS: dict[str, tuple[str, ...]] = {
    "planner/ir/sharding.py": ("ir", "ops", "reshard", "conformance", "spmd"),
    "planner/ir/indexing.py": ("ir", "ops", "reshard", "conformance", "spmd", "choose"),
    "planner/ir/notation.py": ("ir", "ops", "reshard", "conformance", "spmd", "choose"),
    "planner/ir/redistribution.py": ("ir", "ops", "reshard", "run", "conformance", "spmd", "choose"),
    "planner/ir/transfers.py": ("ir", "ops", "reshard", "run", "conformance", "spmd", "choose"),
    "planner/reshard/documented_path.py": ("reshard", "rewrite", "run", "conformance", "spmd"),
    "planner/reshard/": ("reshard", "ir", "run", "conformance", "spmd", "choose"),
    "planner/choose/": ("choose", "reshard", "conformance", "spmd", "planning/test_objectives.py"),
    "planner/rewrite/propagation/": ("rewrite", "conformance", "spmd"),
    "planner/rewrite/best_effort.py": ("rewrite", "conformance", "spmd"),
    "planner/rewrite/materialize.py": ("rewrite", "reshard", "run", "conformance", "spmd"),
    "planner/rewrite/builder.py": ("rewrite", "reshard", "run", "conformance", "spmd"),
    "planner/run/calibrate.py": ("usecases/test_calibrate.py",),
    "planner/run/": ("run", "conformance", "spmd", "ir", "ops", "reshard", "usecases/test_validate_gpu.py"),
    "solvers/evaluation.py": ("solvers",),
    "solvers/presolve/": ("solvers",),
    "solvers/kelley_dual.py": ("solvers",),
    "solvers/dual_ascent.py": ("solvers",),
    "solvers/potentials.py": ("solvers",),
}
"""The modules in which faults are planted, with their folders in tests/."""
LEFT_OUT = ("planner/run/mpi.py", "planner/run/nccl.py", "planner/run/mpi_main.py", "planner/choose/hardware/")
"""Modules that need MPI or several GPUs, or that only read measurements."""
ON_GPU = "GpuHome"


def sampled(count: int, seed: int) -> Iterator[Fault]:
    """Yield distinct faults of random kinds at random places."""
    rng, texts, known = random.Random(seed), dict[str, bytes](), dict[str, list[Fault]]()
    for prefix in TESTS:
        for path in sorted((ROOT / prefix).rglob("*.py")) if prefix.endswith("/") else [ROOT / prefix]:
            name = path.relative_to(ROOT).as_posix()
            if name not in texts and not name.startswith(LEFT_OUT):
                texts[name] = path.read_bytes()
                for fault in faults(name, texts[name]):
                    if not fault.function.startswith(ON_GPU):
                        known.setdefault(fault.kind, []).append(fault)
    for each in known.values():
        rng.shuffle(each)
    while count and any(known.values()):
        kind = rng.choice(list(KINDS))
        if known[kind]:
            fault = known[kind].pop()
            if changes(fault, texts[fault.path]):
                count -= 1
                yield fault
