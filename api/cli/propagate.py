"""The commands of `rewrite` alone, without the solver: an annotated graph in, annotations or a program out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from planner.choose import hardware
from planner.choose.cost import CostModel
from planner.documents.graphs import dump_graph, read_graph, read_mesh
from planner.documents.hardware import read_hardware
from planner.documents.json_writer import check_writable
from planner.documents.plans import read_plan
from planner.documents.programs import dump_program, load_program
from planner.errors import InvalidRequest
from planner.export.formats import FORMATS, export_program
from planner.export.mlir import Dialect, print_graph, print_program, print_spmd
from planner.frontends.mlir import holds_collectives, read_mlir, read_spmd
from planner.ir.graph import Graph, check_sizes
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import price_instruction
from planner.onnx import annotated_model
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.optimize import optimize
from planner.rewrite.propagation.propagate import Traversal, propagate

File = Annotated[Path, typer.Argument(help="A graph document, or MLIR in mesh or shard syntax (.mlir).")]
MeshText = Annotated[str | None, typer.Option("--mesh", help="For a graph document: dp=2,tp=4, 2x4, or a document.")]
Syntax = Annotated[
    Literal["text", "mesh", "shard"],
    typer.Option("--format", help="text, or MLIR: mesh (mlir-opt 19), shard (22)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def propagate_graph(
    file: File,
    mesh: MeshText = None,
    traversal: Annotated[Traversal, typer.Option(help="The order in which ops are visited.")] = "backward-forward",
    *,
    syntax: Syntax = "text",
    as_json: Json = False,
) -> None:
    """Complete the annotations of a graph by the mesh dialect's propagation."""
    graph, devices = _read_graph_or_mlir(file, mesh)
    completed = propagate(graph, devices, traversal=traversal)
    full = replace(graph, annotations=completed.annotations())
    if as_json:
        typer.echo(json.dumps({"annotations": dump_graph(full, devices)["annotations"]}))
    else:
        typer.echo(str(completed) if syntax == "text" else print_graph(full, devices, Dialect(syntax)))


def partition(
    file: File,
    mesh: MeshText = None,
    arguments: Annotated[
        Literal["split", "full"], typer.Option(help="split: every device is given its shards; full: whole tensors.")
    ] = "split",
    *,
    optimized: Annotated[bool, typer.Option("--optimize", help="Run the collective optimisation passes.")] = False,
    hardware_name: Annotated[
        str, typer.Option("--hardware", help="What --optimize is priced on.")
    ] = hardware.DEFAULT_PROFILE,
    syntax: Syntax = "text",
    as_json: Json = False,
) -> None:
    """Turn an annotated graph into an SPMD program: propagated, materialised, partitioned.

    MLIR that holds collectives is one already: it is verified, and printed in the syntax that is asked for.
    """
    if file.suffix == ".mlir" and holds_collectives(file):
        typer.echo(_print_verified(file, syntax, {"--mesh": mesh, "--optimize": optimized, "--json": as_json}))
        return
    graph, devices = _read_graph_or_mlir(file, mesh)
    check_sizes(graph)
    completed = propagate(graph, devices)
    route = make_documented_path(graph, devices)
    found = materialize_completed(graph, devices, completed, route=route, full_arguments=arguments == "full")
    if optimized:
        found = optimize(found, partial(price_instruction, CostModel(devices, read_hardware(hardware_name))))
    if as_json:
        typer.echo(json.dumps({"program": dump_program(found)}))
    else:
        typer.echo(_format_program(found, syntax))


def export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.")],
    syntax: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}; or onnx.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it (else: print).")] = None,
    *,
    model: Annotated[Path | None, typer.Option(help="For onnx: the model that was imported, to annotate.")] = None,
) -> None:
    """Write a plan's program in another tool's language, or its shardings onto the ONNX model it came from."""
    if output is not None:
        check_writable(output)
    program = load_program(read_plan(plan))
    if syntax == "onnx":
        _annotate_onnx(program, model, output)
        return
    if model is not None:
        raise InvalidRequest("--model", got=str(model), wanted=f"--format onnx, not {syntax}")
    text = export_program(program, syntax)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text)


def _annotate_onnx(program: Program, model: Path | None, output: Path | None) -> None:
    if model is None or output is None:
        got = "no --model" if model is None else "no --output"
        raise InvalidRequest("onnx is written onto a model", got=got, wanted="--model MODEL.onnx -o ANNOTATED.onnx")
    output.write_bytes(annotated_model(program, model, output.parent))


def _read_graph_or_mlir(file: Path, mesh: str | None) -> tuple[Graph, Mesh]:
    if file.suffix == ".mlir":
        if mesh is not None:
            raise InvalidRequest("the text has a mesh of its own", where=str(file), got=f"--mesh {mesh}")
        return read_mlir(file)
    if mesh is None:
        raise InvalidRequest("no mesh", where=str(file), wanted="--mesh, e.g. dp=2,tp=4")
    devices = read_mesh(mesh)
    return read_graph(file, devices), devices


def _print_verified(file: Path, syntax: str, refused: Mapping[str, object]) -> str:
    if given := [option for option, value in refused.items() if value]:
        raise InvalidRequest("a program of collectives as it is", where=str(file), got=given[0], wanted="--format")
    program = read_spmd(file)
    return str(program) if syntax == "text" else print_spmd(program, Dialect(syntax))


def _format_program(found: Program, syntax: str) -> str:
    return str(found) if syntax == "text" else print_program(found, Dialect(syntax))
