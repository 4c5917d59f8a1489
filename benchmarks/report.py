"""Measures the report of a large plan: its size, and how soon Chromium shows it.

    python -m benchmarks.report [layers]

The model is Llama 7B with more layers (a training step of 7,000 nodes), planned with a time limit, because only the
report is measured. Writing takes CPU seconds, reading the plan included. The page's times are wall seconds of its own
clock: for the first view from the start of navigation until the summary is drawn, for the others from the click on the
tab, box or op.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.record import write
from planner import pipeline
from planner.choose.hardware import DEFAULT_PROFILE, load_profile
from planner.documents.graphs import load_graph, read_mesh
from planner.documents.json_writer import write_json
from planner.documents.plans import dump_plan, read_plan
from planner.documents.report import dump_report
from planner.documents.schemas import GraphDocument
from planner.export.report import html_page
from planner.frontends.zoo import import_zoo
from planner.planning.plan_types import Request
from tests.testing.browser import browsing, window

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MODEL, MESH, LAYERS, SECONDS, RUNS = "llama-7b", "dp=4,tp=8", 91, 30.0, 5
DRAWN = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => go(performance.now() / 1000))))"
ACTS = {
    "graph_s": "document.querySelector('#tab-graph')",
    "box_s": "document.querySelector('.node.box')",
    "op_s": "document.querySelector('.panel button.link')",
    "memory_s": "document.querySelector('#tab-memory')",
    "communication_s": "document.querySelector('#tab-communication')",
    "schedule_s": "document.querySelector('#tab-schedule')",
}
"""The elements that are clicked, in this order."""


def written(layers: int, folder: Path) -> dict[str, Any]:
    """Write the report of a plan to the folder; return its size and the CPU seconds of each stage."""
    document = import_zoo(MODEL, batch=8, seq=512, train="adam", layers=layers)
    mesh = read_mesh(MESH)
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    planned = pipeline.plan(graph, mesh, load_profile(DEFAULT_PROFILE), request=Request(time_limit_s=SECONDS))
    write_json(folder / "plan.json", dump_plan(planned))
    began = time.process_time()
    report = dump_report(read_plan(folder / "plan.json"))
    drawn = time.process_time()
    page = html_page(report).encode()
    (folder / "report.html").write_bytes(page)
    sizes = {
        "nodes": len(graph.ops),
        "inputs": len(graph.inputs),
        "instructions": len(report["plan"]["program"]["schedule"]["stream"]),
    }
    return {
        **sizes,
        "bytes": len(page),
        "read_and_drawn_cpu_s": drawn - began,
        "written_cpu_s": time.process_time() - drawn,
    }


def shown(browser: Browser, url: str) -> dict[str, float]:
    """Return the seconds until each view is drawn; any error, or a request other than the file's, fails."""
    with window(browser, url) as found:
        times = {"first_view_s": found.page.evaluate(DRAWN)}
        for name, element in ACTS.items():
            pick = f"{element}.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))"
            times[name] = found.page.evaluate(
                f"(() => {{ const at = performance.now() / 1000; {pick}; return {DRAWN}.then((end) => end - at); }})()"
            )
        if found.faults or found.asked != [url]:
            raise SystemExit(f"the page is not as it should be: {found.faults} {found.asked}")
        return times


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    times = result["median_s"]
    heads = [
        "nodes",
        "file",
        "first view",
        "graph",
        "open a box",
        "find an op",
        "memory",
        "communication",
        "schedule",
    ]
    keys = ("first_view_s", *ACTS)
    cells = [f"{result['nodes']:,}", f"{result['bytes'] / 1e6:.1f} MB", *(f"{times[key]:.2f} s" for key in keys)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), cells))


def main() -> None:
    """Measure and write results/report.json."""
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else LAYERS
    asked = {"model": MODEL, "layers": layers, "mesh": MESH, "hardware": DEFAULT_PROFILE, "train": "adam", "runs": RUNS}
    with tempfile.TemporaryDirectory() as folder, browsing() as browser:
        made = written(layers, Path(folder))
        runs = [shown(browser, (Path(folder) / "report.html").as_uri()) for _ in range(RUNS)]
        known = {"chromium": browser.version, "load": round(os.getloadavg()[0], 1)}
    times = {key: round(median(run[key] for run in runs), 3) for key in runs[0]}
    most = {key: round(max(run[key] for run in runs), 3) for key in runs[0]}
    rounded = {key: round(value, 2) if isinstance(value, float) else value for key, value in made.items()}
    write("report", {**asked, **known, **rounded, "median_s": times, "most_s": most})


if __name__ == "__main__":
    main()
