"""`propagate`: completes the annotations of a graph by the rules of `rewrite.propagation` alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from api.cli.graph_files import File, MeshText, Syntax, read_graph_or_mlir
from api.cli.options import JsonOption, print_json
from planner.documents.graphs import dump_graph
from planner.export.mlir import Dialect, print_graph
from planner.rewrite.propagation.propagate import Traversal, propagate


def propagate_graph(
    file: File,
    mesh: MeshText = None,
    traversal: Annotated[Traversal, typer.Option(help="The order in which ops are visited.")] = "backward-forward",
    *,
    syntax: Syntax = "text",
    as_json: JsonOption = False,
) -> None:
    """Complete the annotations of a graph by the mesh dialect's propagation."""
    graph, devices = read_graph_or_mlir(file, mesh)
    completed = propagate(graph, devices, traversal=traversal)
    full = replace(graph, annotations=completed.annotations())
    if as_json:
        print_json({"annotations": dump_graph(full, devices)["annotations"]})
    else:
        typer.echo(str(completed) if syntax == "text" else print_graph(full, devices, Dialect(syntax)))
