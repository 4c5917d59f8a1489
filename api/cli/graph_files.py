"""Graphs from documents or MLIR, and the options of the commands that read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from planner.documents.graphs import read_graph, read_mesh
from planner.errors import InvalidRequest
from planner.export.mlir import Dialect, print_spmd, print_with_device_groups
from planner.frontends.mlir import read_mlir
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.rewrite.lower_program import lower_program
from planner.spmd import SpmdProgram

File = Annotated[Path, typer.Argument(help="A graph document, or MLIR in mesh or shard syntax (.mlir).")]
MeshText = Annotated[str | None, typer.Option("--mesh", help="For a graph document: dp=2,tp=4, 2x4, or a document.")]
Syntax = Annotated[
    Literal["text", "mesh", "shard"],
    typer.Option("--format", help="text, or MLIR: mesh (mlir-opt 19), shard (22)."),
]
ProgramSyntax = Annotated[
    Literal["text", "mesh", "shard", "mhlo"],
    typer.Option(
        "--format",
        help="text, or MLIR: mesh (mlir-opt 19), shard (22), mhlo (collectives over device groups, slices by index).",
    ),
]


def read_graph_or_mlir(file: Path, mesh: str | None) -> tuple[Graph, Mesh]:
    """Return the graph and mesh of a file. MLIR has its own; a graph document needs `mesh`. Raises InvalidRequest."""
    if file.suffix == ".mlir":
        if mesh is not None:
            raise InvalidRequest("the text has a mesh of its own", where=str(file), got=f"--mesh {mesh}")
        return read_mlir(file)
    if mesh is None:
        raise InvalidRequest("no mesh", where=str(file), wanted="--mesh, e.g. dp=2,tp=4")
    devices = read_mesh(mesh)
    return read_graph(file, devices), devices


def refuse_options(file: Path, options: Mapping[str, object]) -> None:
    """Raise InvalidRequest where an option is given that does not apply to a program of collectives."""
    if conflicting := [option for option, value in options.items() if value]:
        wanted = "--format, --optimize"
        raise InvalidRequest("the file is a program already", where=str(file), got=conflicting[0], wanted=wanted)


def format_spmd(program: SpmdProgram, syntax: str, function: str = "main") -> str:
    """Return a program of collectives on local tensors as text or MLIR."""
    if syntax == "text":
        return str(program)
    return (
        print_with_device_groups(program, function)
        if syntax == "mhlo"
        else print_spmd(program, Dialect(syntax), function)
    )


def format_program(program: Program, syntax: str) -> str:
    """Return a program as text or MLIR."""
    return str(program) if syntax == "text" else format_spmd(lower_program(program), syntax, program.graph.name)
