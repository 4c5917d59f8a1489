"""`check` on pairs of graphs: neutral edits raise no alarm, costly ones are found and attributed to an op.

Every pair is a small model and a seeded edit of it (`tests.testing.graph_edits`). A costly edit counts where planning
the edited graph on its own shows a rise of more than 5 % in time, bytes or memory; `check` must then find it, and the
first cause that it names must be an op that was edited, or the value that was pinned or returned. With odd seeds the
edited graph is exported again, with other names and order. Draws of an edit that raise nothing are not pairs. Networks
in JAX (`examples.jax_models`), as JAX 0.8.3 lowered them (`benchmarks/data`), are compared with those lowered by the
installed version. CPU seconds are those of a whole check, planning included.

    python -m benchmarks.check
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import date
from functools import cache
from gzip import decompress as gunzip
from pathlib import Path
from typing import Any

from benchmarks.record import write
from planner import pipeline
from planner.choose.hardware import load_profile
from planner.documents.check_report import dump_check
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan, parse_plan
from planner.documents.schemas import GraphDocument, PlanDocument
from planner.frontends.stablehlo import import_text
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.judge.check.limits import parse_limits
from planner.planning.plan_types import Request
from planner.usecases import check
from tests.testing.graph_edits import DEARER, NEUTRAL, Document, Edited, exported_again, resized

SIZES: Document = {"layers": 1, "batch": 8, "seq": 128}
SMALL: Document = {**SIZES, "width": 256, "heads": 8}
MODELS: dict[str, tuple[Document, str]] = {
    "gpt2": ({"name": "gpt2", "feed_forward": 3072, **SIZES}, "dp=2,tp=4"),
    "gpt2 training": ({"name": "gpt2", "feed_forward": 3072, "train": "adam", **SIZES}, "dp=2,tp=2"),
    "llama": ({"name": "llama-7b", "feed_forward": 1024, "vocabulary": 4096, **SMALL}, "2x4"),
    "mixtral": ({"name": "mixtral-8x7b", "feed_forward": 512, "vocabulary": 4096, **SMALL}, "2x2"),
}
RISE, DRAWS, SEEDS = 0.05, 6, 2
RESIZED: dict[str, tuple[str, Callable[[int], int]]] = {
    "feed-forward layer wider and uneven": ("feed_forward", lambda size: size * 3 // 2 + 1),
    "batch larger by half": ("batch", lambda size: size * 3 // 2),
}
LIMITS = "time>5%,bytes>5%,memory>5%"
NOTHING = "time>0.5%,bytes>0.5%,memory>0.5%"
TODAY = date(2026, 1, 1)
FAMILIES, KINDS = ("gpt", "llama", "mixtral"), ("inference", "adam")
OLD = Path(__file__).parent / "data" / "jax-0.8.3"
VERSIONS = "lowered by JAX 0.10, not 0.8"
FIGURES = {"step_s": "time>5%", "collective_bytes": "bytes>5%", "peak_bytes": "memory>5%"}


@cache
def base(model: str) -> tuple[Document, PlanDocument]:
    """Return a model and its plan, cached."""
    sizes, mesh = MODELS[model]
    document = import_zoo(**sizes)
    return document, planned(document, mesh)


def planned(document: Document, mesh: str) -> PlanDocument:
    """Plan a graph without reference to any base."""
    devices = Mesh.parse(mesh, "h100-sxm")
    graph = load_graph(GraphDocument.model_validate(document), devices)
    found = pipeline.plan(graph, devices, load_profile("h100-sxm"), request=Request(deterministic=True))
    return parse_plan(json.loads(json.dumps(dump_plan(found))), "plan")


def told(plan: PlanDocument, edited: Document, limits: str) -> Document:
    """Return the report of `check` on an edited model against the plan of its base, with its CPU seconds."""
    start = time.process_time()
    new = GraphDocument.model_validate(edited)
    found = dump_check(check.compare_plans(plan, new), parse_limits(limits), [], today=TODAY)
    return {**found, "cpu_s": time.process_time() - start}


def neutral_pair(model: str, edit: str, seed: int) -> Document:
    """Check an edit that changes no cost, with limits of 0.5 %."""
    edited = NEUTRAL[edit](base(model)[0], random.Random(seed))
    assert edited is not None
    found = told(base(model)[1], edited.document, NOTHING)
    return {"model": model, "edit": edit, "seed": seed} | _unmoved(found)


def version_pair(family: str, kind: str) -> Document:
    """Check a network against the same one as lowered by another version of JAX."""
    from examples.jax_models import Model, inference, training  # jax is needed for nothing else here

    function, *arguments = inference(Model(family), 8) if kind == "inference" else training(Model(family), 8, kind)
    texts = gunzip((OLD / f"{family}-{kind}.mlir.gz").read_bytes()).decode(), function.lower(*arguments).as_text()
    older, newer = (import_text(text, family).document for text in texts)
    found = told(planned(older, "2x2"), newer, NOTHING)
    return {"model": f"{family} {kind}, JAX", "edit": VERSIONS, "seed": 0} | _unmoved(found)


def _unmoved(found: Document) -> Document:
    return {"unplanned": found["graphs_equal"], "alarms": [each["limit"] for each in found["exceeded"]]} | cpu(found)


def dearer_pair(model: str, edit: str, seed: int) -> Document | None:
    """Check the first draw of an edit that raises a figure; None where no draw does."""
    draw = random.Random(seed)
    for _ in range(1 if edit in RESIZED else DRAWS):
        edited = _edited(model, edit, seed, draw)
        if edited is not None and (rises := _rises(model, edited.document)):
            return {"model": model, "edit": edit, "seed": seed, "rises": rises} | _found(model, edited, rises)
    return None


def _edited(model: str, edit: str, seed: int, draw: random.Random) -> Edited | None:
    sizes = MODELS[model][0]
    start = _exported(import_zoo(**sizes), seed)
    if edit in DEARER:
        return DEARER[edit](start, draw)
    key, larger = RESIZED[edit]
    return resized(start, _exported(import_zoo(**{**sizes, key: larger(sizes[key])}), seed))


def _exported(document: Document, seed: int) -> Document:
    return exported_again(document, random.Random(seed)).document if seed % 2 else document


def _rises(model: str, document: Document) -> Document:
    """Return the relative rise of each figure, in a plan made without reference to the base."""
    plans = base(model)[1], planned(document, MODELS[model][1])
    numbers = [{**plan.cost.model_dump(), **plan.memory.model_dump()} for plan in plans]
    shares = {
        key: numbers[1][key] / numbers[0][key] - 1 if numbers[0][key] else float(numbers[1][key] > 0) for key in FIGURES
    }
    return {key: round(share, 4) for key, share in shares.items() if share > RISE}


def _found(model: str, edited: Edited, rises: Document) -> Document:
    found = told(base(model)[1], edited.document, LIMITS)
    exceeded = found["exceeded"]
    named = [each["causes"][0]["name"] if each["causes"] else None for each in exceeded]
    exact = all(sum(term["change"] for term in each["terms"]) == each["change"] for each in exceeded)
    return {
        "touched": sorted(edited.touched),
        "exceeded": [each["limit"] for each in exceeded],
        "found": {FIGURES[key] for key in rises} <= {each["limit"] for each in exceeded},
        "causes": named,
        "attributed": bool(named) and all(name in edited.touched for name in named),
        "terms_add_up": exact,
    } | cpu(found)


def cpu(found: Document) -> Document:
    return {"cpu_s": round(found["cpu_s"], 2)}


def summary(neutral: list[Document], dearer: list[Document]) -> Document:
    """Count the outcomes by kind of edit."""
    return {
        "neutral": _counted(
            neutral, {"false alarms": lambda pair: bool(pair["alarms"]), "unplanned": lambda pair: pair["unplanned"]}
        ),
        "dearer": _counted(
            dearer, {"found": lambda pair: pair["found"], "attributed": lambda pair: pair["attributed"]}
        ),
    }


def _counted(pairs: list[Document], tests: dict[str, Any]) -> Document:
    found: dict[str, Counter[str]] = {}
    for pair in pairs:
        counts = found.setdefault(pair["edit"], Counter(dict.fromkeys(["pairs", *tests], 0)))
        counts.update({"pairs": 1, **{name: int(test(pair)) for name, test in tests.items()}})
    return {edit: dict(counts) for edit, counts in found.items()}


def table(result: Document) -> str:
    """Return the result as a Markdown table."""
    rows = ["| edit | pairs | alarms | attributed to the edit |", "|---|---|---|---|"]
    for edit, counts in result["summary"]["neutral"].items():
        rows.append(f"| {edit} | {counts['pairs']} | {counts['false alarms']} | |")
    for edit, counts in result["summary"]["dearer"].items():
        rows.append(f"| {edit} | {counts['pairs']} | {counts['found']} | {counts['attributed']} |")
    return "\n".join(rows)


def main() -> None:
    """Check every model with every edit, and write results/check.json."""
    neutral = [neutral_pair(model, edit, seed) for model in MODELS for edit in NEUTRAL for seed in range(SEEDS)]
    neutral += [version_pair(family, kind) for family in FAMILIES for kind in KINDS]
    drawn = [
        dearer_pair(model, edit, seed) for model in MODELS for edit in (*RESIZED, *DEARER) for seed in range(SEEDS)
    ]
    dearer = [pair for pair in drawn if pair is not None]
    seconds = round(time.process_time(), 1)
    pairs = {"neutral": neutral, "dearer": dearer, "without_a_rise": len(drawn) - len(dearer)}
    write("check", {"cpu_s": seconds, "summary": summary(neutral, dearer), **pairs})


if __name__ == "__main__":
    main()
