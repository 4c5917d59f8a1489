"""`demo`: plans a model for which no standard layout is best, runs the plan, shows it, and writes its report."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from api.cli.options import console
from api.cli.plan import plan_graph
from api.cli.progress import show_run_progress
from api.cli.render_plan import render_plan
from api.units import parse_bytes
from planner import Mesh, Request, pipeline
from planner.documents.json_writer import check_writable, write_text
from planner.documents.plans import dump_plan, parse_plan
from planner.documents.report import dump_report
from planner.errors import InvalidDocument
from planner.export.report import html_page
from planner.units import format_share

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "gpt2.json.gz"
MESH, HARDWARE, MEMORY_LIMIT, GAP = "dp=2,tp=4", "h100-sxm", "400 MB", 5e-3
REPORT = Path("shardplan-demo.html")

QUESTION = (
    f"The question: how is GPT-2 small, reading 8 sequences of 512 tokens, best split over the 8 H100 GPUs of a mesh "
    f"{MESH}, when only {MEMORY_LIMIT} of each may be used? The answer is a plan proven to be within "
    f"{format_share(GAP)} of the fastest, run on 8 logical devices and compared with the unsharded model."
)
NEXT = """\
Next{first}, a training step (a model of your own comes from `shardplan import torch`, `jax` or `onnx`):
  shardplan import zoo gpt2 --layers 2 --train adam --batch 8 --seq 128 -o step.json.gz
  shardplan plan step.json.gz --mesh dp=2,tp=4 --memory-limit 200MB --gap 0.05 --validate -o plan.json.gz
  shardplan explain plan.json.gz"""


def demo(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.html", help=f"Where to write the report [{REPORT}].")
    ] = None,
) -> None:
    """Plan GPT-2 small in 400 MB per device, run the plan, show it, and write its report."""
    if output:
        check_writable(output)
    out = console()
    out.print(Text(QUESTION), end="\n\n")
    request = Request(memory_limit_bytes=parse_bytes(MEMORY_LIMIT), gap=GAP)
    plan = plan_graph(EXAMPLE, Mesh.parse(MESH), HARDWARE, request=request)
    with show_run_progress("validating") as progress:
        document = dump_plan(pipeline.validate_plan(plan, on_progress=progress))
    render_plan(out, document)
    out.print(Text(compare_with_standard(document)), end="\n\n")
    out.print(Text(write_report(document, output)), soft_wrap=True, end="\n\n")
    out.print(Text(NEXT.format(first=describe_activation(Path(sys.prefix)))), soft_wrap=True)


def compare_with_standard(document: dict[str, Any]) -> str:
    """Return a sentence that compares the plan with the best standard layout that fits."""
    fitting = [layout for layout in document["baselines"] if layout["fits"]]
    if not fitting:
        return "No standard layout fits."
    best = min(fitting, key=lambda layout: layout["step_s"])
    ratio = best["step_s"] / document["solver"]["objective_s"]
    if ratio <= 1:
        return f"The answer is a standard layout: {best['name']}."
    too_large = [layout["name"] for layout in document["baselines"] if not layout["fits"]]
    others = f"; {' and '.join(too_large)} {'does' if len(too_large) == 1 else 'do'} not fit" if too_large else ""
    sentence = f"No standard layout is the answer: {best['name']}, the best that fits, takes {ratio:.2f} times as long"
    return f"{sentence}{others}."


def write_report(document: dict[str, Any], output: Path | None) -> str:
    """Write a plan's report and return a sentence about it. Raises InvalidDocument where `output` cannot be written."""
    with show_run_progress("writing the report"):
        sheet = dump_report(parse_plan(json.loads(json.dumps(document)), "the demo's plan"))
    try:
        write_text(output or REPORT, html_page(sheet))
    except InvalidDocument as error:
        if output:
            raise
        return f"The report is not written: {error}. Name another place with `shardplan demo -o FILE.html`."
    return f"The report, for a browser: {(output or REPORT).resolve()}"


def describe_activation(environment: Path) -> str:
    """Return the command that activates the environment, where `shardplan` is not on the path, as after `make demo`."""
    activate = environment / "bin" / "activate"
    if shutil.which("shardplan") or not activate.is_file():
        return ""
    path = activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate
    return f", after `. {shlex.quote(str(path))}`"
