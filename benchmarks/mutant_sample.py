"""Where faults are planted, where that is tested, and a random sample of faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.source_faults import KINDS, Fault, changes, faults

ROOT = Path(__file__).resolve().parents[1]

TESTS: dict[str, tuple[str, ...]] = {
    "planner/ir/sharding.py": ("model", "conformance"),
    "planner/ir/indexing.py": ("model", "conformance", "choose"),
    "planner/ir/notation.py": ("model", "conformance", "choose"),
    "planner/ir/redistribution.py": ("model", "run", "conformance", "choose"),
    "planner/reshard/tiles.py": ("model", "run", "conformance", "choose"),
    "planner/reshard/comm_rounds.py": ("model", "run", "conformance", "choose"),
    "planner/choose/": ("choose", "conformance", "test_objectives.py"),
    "planner/rewrite/propagation/propagate.py": ("rewrite", "conformance"),
    "planner/rewrite/propagation/": ("rewrite", "conformance"),
    "planner/rewrite/best_effort.py": ("rewrite", "conformance"),
    "planner/rewrite/materialize.py": ("rewrite", "run", "conformance"),
    "planner/reshard/documented_path.py": ("rewrite", "run", "conformance"),
    "planner/rewrite/builder.py": ("rewrite", "run", "conformance"),
    "planner/run/calibrate.py": ("test_calibration.py",),
    "planner/run/": ("run", "conformance", "model", "test_gpu.py"),
    "solvers/evaluation.py": ("solvers",),
    "solvers/presolve/": ("solvers",),
    "solvers/kelley_dual.py": ("solvers",),
    "solvers/dual_ascent.py": ("solvers",),
    "solvers/potentials.py": ("solvers",),
}
"""Where faults are planted, and where in tests/ that is tested."""
LEFT_OUT = ("planner/run/mpi.py", "planner/run/nccl.py", "planner/run/mpi_main.py", "planner/choose/hardware/")
"""What needs MPI or several GPUs, and what reads measurements rather than decides."""
ON_GPU = "GpuHome"


def sampled(count: int, seed: int) -> Iterator[Fault]:
    """Faults of kinds and places drawn at random, none twice."""
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
