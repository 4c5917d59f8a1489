"""Three plans whose digests are kept with the versions that made them: a plan may change only where a version does.

python -m tests.testing.golden_plans            prints what has changed
python -m tests.testing.golden_plans --write    updates tests/golden/plans.json, after a version was raised
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner import pipeline
from planner.documents.canonical_json import digest_document
from planner.documents.graphs import load_graph
from planner.documents.hardware import read_hardware
from planner.documents.json_reader import read_json
from planner.documents.plans import dump_plan
from planner.documents.schemas import AnnotationDocument, GraphDocument, validate_document
from planner.documents.versions import current_versions, versions_text
from planner.ir.mesh import Mesh
from planner.planning.plan_types import Request
from tests.testing.small_documents import Document, pin

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FILE = GOLDEN / "plans.json"
OURS = ("shardplan", "cost_model", "document")
WRITE = "python -m tests.testing.golden_plans --write"
RAISE = (
    "raise VERSION in planner/choose/cost.py where costs changed, else the number after .dev in planner/version.py; "
    f"then: {WRITE}"
)


def _forward() -> Document:
    """Plan one layer of Mixtral under a limit that forces weights to be sharded and gathered."""
    return _planned("forward", "dp=2,tp=4", memory_limit_bytes=500_000_000)


def _training() -> Document:
    """Plan seven equal layers of GPT-2 with Adam under a limit at which the layers get different shardings."""
    return _planned("training", "2x2", memory_limit_bytes=640_000_000, gap=1e-2)


def _recomputed() -> Document:
    """Plan two layers of GPT-2 with a batch pinned to be split over three devices, which does not divide evenly."""
    pins = (AnnotationDocument.model_validate(pin("input_ids", [["dp"]])),)
    return _planned("recomputed", "dp=3", pins, memory_limit_bytes=640_000_000, gap=1e-2, recompute="auto")


PLANS: Mapping[str, Callable[[], Document]] = {
    "forward, collectives within a limit": _forward,
    "training, folded, within a tight limit": _training,
    "training, recomputed, pinned, uneven": _recomputed,
}


def _planned(name: str, mesh: str, pins: Sequence[AnnotationDocument] = (), **request: Any) -> Document:
    """Plan a graph and a profile from tests/golden, so that only the planner can change the result."""
    hardware = read_hardware(str(GOLDEN / "hardware.json"))
    devices = Mesh.parse(mesh, hardware.name)
    document = validate_document(GraphDocument, read_json(GOLDEN / f"{name}.json.gz"), name)
    asked = Request(deterministic=True, **{"gap": 1e-6, **request})
    return dump_plan(pipeline.plan(load_graph(document, devices, pins), devices, hardware, request=asked))


def behaviour(plan: Document) -> Document:
    """Return the plan's headline figures and a digest of everything in it except the versions."""
    solver = {key: value for key, value in plan["solver"].items() if key != "versions"}
    decided = {key: value for key, value in plan.items() if key not in ("id", "digest")} | {"solver": solver}
    figures = {key: solver[key] for key in ("status", "objective_s", "bound_s")}
    memory = {"collective_bytes": plan["cost"]["collective_bytes"], "peak_bytes": plan["memory"]["peak_bytes"]}
    return {"digest": digest_document(decided), **figures, **memory}


def current() -> Document:
    """Return the content that plans.json should have."""
    documents = {name: plan() for name, plan in PLANS.items()}
    (form,) = {document["version"] for document in documents.values()}
    plans = {name: behaviour(document) for name, document in documents.items()}
    return {"versions": {**current_versions(), "document": form}, "plans": plans}


def fault(kept: Document, now: Document) -> str | None:
    """Return what is wrong with the file and how to mend it, or None if it is right."""
    versions = f"{versions_text(kept['versions'])}, now {versions_text(now['versions'])}"
    changed = _changes(kept["plans"], now["plans"])
    if any(kept["versions"].get(name) != now["versions"][name] for name in OURS):
        return f"the versions of the golden plans were {versions}: renew them: {WRITE}"
    if not changed:
        return None
    if kept["versions"]["ortools"] != now["versions"]["ortools"]:
        return f"another OR-Tools makes other plans ({versions}): renew them: {WRITE}\n{changed}"
    return f"plans changed, and no version did ({versions_text(now['versions'])}): {RAISE}\n{changed}"


def may_be_written(kept: Document, now: Document) -> bool:
    """Return whether the file is out of date and a version was raised, so that it may be rewritten."""
    return fault(kept, now) is not None and kept["versions"] != now["versions"]


def _changes(kept: Document, now: Document) -> str:
    lines = []
    for name in {**kept, **now}:
        before, after = kept.get(name, {}), now.get(name, {})
        moved = [f"{key} {after.get(key)}, was {before.get(key)}" for key in after if before.get(key) != after.get(key)]
        if before != after:
            lines.append(f"  {name}: {'; '.join(moved) or 'gone'}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Compare with the file, or rewrite it with --write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    kept, now = json.loads(FILE.read_text()), current()
    if asked.write and may_be_written(kept, now):
        FILE.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    wrong = fault(kept, now)
    sys.stdout.write(f"{wrong or 'nothing has changed'}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
