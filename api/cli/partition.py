"""`partition`: turns an annotated graph into an SPMD program."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import typer

from api.cli.graph_files import (
    File,
    MeshText,
    ProgramSyntax,
    format_program,
    format_spmd,
    read_graph_or_mlir,
    refuse_options,
)
from api.cli.options import JsonOption, print_json
from planner.choose import hardware
from planner.choose.cost import CostModel
from planner.documents.hardware import read_hardware
from planner.documents.programs import dump_program
from planner.frontends.mlir import holds_collectives, read_spmd
from planner.ir.graph import check_sizes
from planner.judge.analysis import price_instruction
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.optimize import optimize
from planner.rewrite.optimize_spmd import optimize_spmd
from planner.rewrite.propagation.propagate import propagate


def partition(
    file: File,
    mesh: MeshText = None,
    arguments: Annotated[
        Literal["split", "full"], typer.Option(help="split: every device gets its shards; full: it gets whole tensors.")
    ] = "split",
    *,
    optimized: Annotated[bool, typer.Option("--optimize", help="Run the collective optimisation passes.")] = False,
    hardware_name: Annotated[
        str, typer.Option("--hardware", help="The profile that --optimize prices with.")
    ] = hardware.DEFAULT_PROFILE,
    syntax: ProgramSyntax = "text",
    as_json: JsonOption = False,
) -> None:
    """Turn an annotated graph into an SPMD program: propagate, materialize, partition.

    MLIR that contains collectives is a program already: it is verified, with --optimize also optimised, and printed in
    the requested syntax.
    """
    if file.suffix == ".mlir" and holds_collectives(file):
        refuse_options(file, {"--mesh": mesh, "--json": as_json})
        verified = read_spmd(file)
        typer.echo(format_spmd(optimize_spmd(verified) if optimized else verified, syntax))
        return
    graph, devices = read_graph_or_mlir(file, mesh)
    check_sizes(graph)
    completed = propagate(graph, devices)
    route = make_documented_path(graph, devices)
    program = materialize_completed(graph, devices, completed, route=route, full_arguments=arguments == "full")
    if optimized:
        program = optimize(program, partial(price_instruction, CostModel(devices, read_hardware(hardware_name))))
    if as_json:
        print_json({"program": dump_program(program)})
    else:
        typer.echo(format_program(program, syntax))
