"""The command line. Bad input and wrong usage end in one message on standard error and exit code 1."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from api import resharding, rewriting
from api.errors import one_message
from api.pages import show_plan, verdict_lines
from api.progress import running, solving
from api.solving import solve
from api.units import parse_bytes
from planner import Mesh, Plan, Request, pipeline
from planner.choose import hardware
from planner.documents.graphs import read_graph, read_mesh
from planner.documents.plans import plan_document, read_plan, verdict_document
from planner.documents.programs import program_from
from planner.documents.writing import check_writable, write_json
from planner.errors import InvalidDocument
from planner.frontends import zoo
from planner.frontends.torch import import_torch
from planner.run.validate import checked_module
from planner.run.validate import validate as run_plan

DEMO = "gpt2.json.gz"
MAX_SEED = (1 << 31) - 1

app = typer.Typer(
    help="Plan how a model is sharded over a device mesh, with a proven bound; run the plan; show why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
imports = typer.Typer(help="Turn a framework's model into a graph document.", no_args_is_help=True)
profiles = typer.Typer(help="Hardware profiles.", no_args_is_help=True)
app.add_typer(imports, name="import")
app.command("propagate")(rewriting.complete)
app.command("partition")(rewriting.partition)
app.command("export")(rewriting.export)
app.command("reshard")(resharding.reshard)
app.command("migrate")(resharding.migrate)
app.command("solve")(solve)
app.add_typer(profiles, name="hardware")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the document (.json or .json.gz).")]
Backend = Annotated[str, typer.Option(help="numpy or cupy.")]
Shrink = Annotated[str, typer.Option(help="auto: run on small sizes with the same program; none: full sizes.")]


@app.command()
def plan(
    graph: Annotated[Path, typer.Argument(help="A graph document (.json or .json.gz).")],
    mesh: Annotated[str, typer.Option(help="dp=2,tp=4, or 2x4, or a mesh document.")],
    hardware_name: Annotated[str | None, typer.Option("--hardware", help="A profile; see `hardware list`.")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="Per device, e.g. 80GiB; else the hardware's.")] = None,
    pin: Annotated[Path | None, typer.Option(help="Annotations (a pins document) the plan must meet.")] = None,
    gap: Annotated[float, typer.Option(help="Stop when the proven gap is this small.")] = 1e-6,
    time_limit: Annotated[float | None, typer.Option(help="Seconds of solving.")] = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Same input, same bytes.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the solver.")] = 0,
    validate: Annotated[bool, typer.Option("--validate", help="Run the plan and give the verdict.")] = False,
    backend: Backend = "numpy",
    shrink: Shrink = "auto",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Choose how every op of a graph is sharded."""
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    if output:
        check_writable(output)
    request = Request(limit, gap, time_limit, deterministic, seed)
    devices = read_mesh(mesh)
    if validate:
        checked_module(backend, shrink, "f64", devices)
    found = _planned(graph, devices, hardware_name, request, pin)
    if validate:
        with running("validating") as progress:
            found = pipeline.validated(found, backend, shrink, progress)
    document = plan_document(found)
    if output:
        write_json(output, document)
    _print_plan(document, as_json)


def _planned(graph: Path, mesh: Mesh, name: str | None, request: Request, pin: Path | None = None) -> Plan:
    profile = hardware.load(name or mesh.device or hardware.DEFAULT)
    mesh = replace(mesh, device=profile.name)
    with solving() as progress:
        return pipeline.plan(read_graph(graph, mesh, pin), mesh, profile, request, progress)


def _print_plan(document: dict[str, Any], as_json: bool) -> None:
    if not as_json:
        show_plan(_console(), document)
        return
    solver, verdict = document["solver"], document["verdict"]
    _print_json(
        {
            "id": document["id"],
            **{key: solver[key] for key in ("status", "objective_s", "bound_s", "gap")},
            "collective_bytes": document["cost"].get("collective_bytes"),
            "peak_memory_bytes": document["memory"].get("peak_bytes"),
            "verdict": verdict and verdict["verdict"],
            **{key: solver[key] for key in ("least_limit_bytes", "least_limit_bound_bytes", "reason", "wall_s")},
        }
    )


@app.command()
def validate(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.")],
    backend: Backend = "numpy",
    shrink: Shrink = "auto",
    precision: Annotated[str, typer.Option(help="f64 or f32: the type in which floats are computed.")] = "f64",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the inputs.")] = 0,
    as_json: Json = False,
) -> None:
    """Run a plan on logical devices and compare it with the unsharded graph (exit code 1 where they differ)."""
    program = program_from(read_plan(plan_file))
    with running("validating") as progress:
        verdict = verdict_document(run_plan(program, backend, shrink, precision, seed, progress))
    if as_json:
        _print_json(verdict)
    else:
        _console().print("\n".join(verdict_lines(verdict)), highlight=False)
    if verdict["verdict"] == "different":
        raise typer.Exit(1)


@app.command()
def show(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.")],
    program: Annotated[bool, typer.Option("--program", help="Print the SPMD program instead.")] = False,
    as_json: Json = False,
) -> None:
    """Show a plan as a page to review."""
    document = read_plan(plan_file)
    if program:
        typer.echo(str(program_from(document)))
    elif as_json:
        _print_json(document.model_dump(mode="json", exclude_unset=True))
    else:
        show_plan(_console(), document.model_dump(mode="json", exclude_unset=True))


@app.command()
def demo() -> None:
    """Plan GPT-2 small, as PyTorch exports it, on dp=2,tp=4; run the plan; show it."""
    found = _planned(_example(DEMO), Mesh.parse("dp=2,tp=4"), None, Request())
    with running("validating") as progress:
        show_plan(_console(), plan_document(pipeline.validated(found, on_progress=progress)))


def _example(name: str) -> Path:
    """An example beside the package (installed), or in the repository."""
    here = Path(__file__).resolve().parent
    for place in (here / "examples" / name, here.parent / "examples" / name):
        if place.is_file():
            return place
    raise InvalidDocument("example is missing", where=name, wanted="a complete installation")


@imports.command("torch")
def from_torch(
    model: Annotated[str, typer.Option(help="transformers:gpt2 (any causal language model), or module:function.")],
    batch: Annotated[int, typer.Option(min=1)],
    seq: Annotated[int, typer.Option(min=1)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The graph document to write.")],
    layers: Annotated[int | None, typer.Option(min=1, help="Another number of layers.")] = None,
    dtype: Annotated[str, typer.Option(help="Element type of the parameters.")] = "f32",
    as_json: Json = False,
) -> None:
    """Export a PyTorch model's forward pass, without its weights (extra: torch)."""
    sys.path.insert(0, "")  # module:function is the user's own, looked for where the command runs
    check_writable(output)
    document = import_torch(model, batch=batch, seq=seq, layers=layers, dtype=dtype)
    _written(document, output, as_json)


@imports.command("zoo")
def from_zoo(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(zoo.MODELS)}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The graph document to write.")],
    train: Annotated[str | None, typer.Option(help="A training step with this optimizer: sgd or adam.")] = None,
    batch: Annotated[int, typer.Option(min=1)] = 8,
    seq: Annotated[int | None, typer.Option(min=1, help="Else 2048, or the most the model was published for.")] = None,
    layers: Annotated[int | None, typer.Option(min=1)] = None,
    width: Annotated[int | None, typer.Option(min=1)] = None,
    heads: Annotated[int | None, typer.Option(min=1)] = None,
    kv_heads: Annotated[int | None, typer.Option(min=1, help="Key and value heads, shared by the queries'.")] = None,
    feed_forward: Annotated[int | None, typer.Option(min=1)] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1)] = None,
    experts: Annotated[int | None, typer.Option(min=1)] = None,
    capacity: Annotated[float, typer.Option(help="Times its even share of the tokens that an expert may take.")] = 1.0,
    dtype: Annotated[str, typer.Option(help="Element type of the parameters.")] = "bf16",
    as_json: Json = False,
) -> None:
    """Write a published model, or one of its family in other sizes: forward pass or training step."""
    check_writable(output)
    document = zoo.import_zoo(
        name,
        batch=batch,
        seq=seq,
        dtype=dtype,
        train=train,
        capacity=capacity,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        feed_forward=feed_forward,
        vocabulary=vocabulary,
        experts=experts,
    )
    _written(document, output, as_json)


def _written(document: dict[str, Any], output: Path, as_json: bool) -> None:
    identity = write_json(output, document)
    counts = {"nodes": len(document["nodes"]), "inputs": len(document["inputs"])}
    if as_json:
        _print_json({"name": document["name"], **counts, "digest": identity})
    else:
        typer.echo(f"{output}: {document['name']}, {counts['nodes']} nodes, {counts['inputs']} inputs, {identity[:12]}")


@profiles.command("list")
def list_hardware(as_json: Json = False) -> None:
    """Names of the built-in profiles."""
    names = hardware.names()
    if as_json:
        _print_json({"hardware": names})
    else:
        typer.echo("\n".join(names))


@profiles.command("show")
def show_hardware(name: str) -> None:
    """A profile with the source of every number."""
    typer.echo(hardware.source_text(name), nl=False)


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, allow_nan=False))


def main() -> None:
    """Run the command line; the process ends with the exit code."""
    sys.exit(one_message(app))
