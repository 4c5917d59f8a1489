"""`optimize`: runs the collective optimisation passes on a program written in MLIR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from api.cli.graph_files import File, ProgramSyntax, format_spmd
from api.cli.options import JsonOption, print_json
from planner.errors import InvalidRequest
from planner.frontends.mlir import holds_collectives, read_spmd
from planner.rewrite.optimize_spmd import DEFAULT_PASSES, SPMD_PASSES, optimize_spmd

PASS_NAMES = {name.replace("_", "-"): name for name in SPMD_PASSES}


def optimize(
    file: File,
    passes: Annotated[
        list[str] | None,
        typer.Option(
            "--pass",
            help=f"A pass to run, in the given order: {', '.join(PASS_NAMES)}. Default: all but decompose-all-reduce.",
        ),
    ] = None,
    *,
    syntax: ProgramSyntax = "mesh",
    as_json: JsonOption = False,
) -> None:
    """Run collective optimisation passes on MLIR that contains collectives, until none finds anything.

    A pass that is named is applied wherever it can be, whether or not it pays.
    """
    if file.suffix != ".mlir" or not holds_collectives(file):
        wanted = "MLIR with collectives; for an annotated graph: shardplan partition --optimize"
        raise InvalidRequest("no program of collectives", where=str(file), wanted=wanted)
    text = format_spmd(optimize_spmd(read_spmd(file), _find_passes(passes) or DEFAULT_PASSES), syntax)
    if as_json:
        print_json({"program": text})
    else:
        typer.echo(text)


def _find_passes(names: Sequence[str] | None) -> list[str]:
    for name in names or ():
        if name not in PASS_NAMES:
            raise InvalidRequest("no such pass", where="--pass", got=name, wanted=f"one of {', '.join(PASS_NAMES)}")
    return [PASS_NAMES[name] for name in names or ()]
