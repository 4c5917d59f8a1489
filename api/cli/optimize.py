"""`optimize`: runs the collective optimisation passes on a program written in MLIR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from api.cli.graph_files import ProgramSyntax, format_spmd
from api.cli.options import JsonOption, print_json
from planner.errors import InvalidRequest
from planner.frontends.mlir import holds_collectives, read_spmd
from planner.rewrite.optimize_spmd import DEFAULT_PASSES, SPMD_PASSES, optimize_spmd
from planner.spmd import SpmdProgram, check_coherence

PASS_NAMES = {name.replace("_", "-"): name for name in SPMD_PASSES}


def optimize(
    files: Annotated[
        list[Path], typer.Argument(metavar="{file}...", help="MLIR with collectives; several files: a device's each.")
    ],
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

    A pass that is named is applied wherever it can be, whether or not it pays. Several files are the programs of
    several devices: these must reach the same collectives in the same order, before the passes and after.
    """
    programs = [_read_program(file) for file in files]
    check_coherence([program.instructions for program in programs])
    optimized = [optimize_spmd(program, _find_passes(passes) or DEFAULT_PASSES) for program in programs]
    check_coherence([program.instructions for program in optimized])
    texts = [format_spmd(program, syntax) for program in optimized]
    if as_json:
        print_json({"program": texts[0]} if len(texts) == 1 else {"programs": texts})
    else:
        typer.echo("\n// -----\n\n".join(texts))


def _read_program(file: Path) -> SpmdProgram:
    if file.suffix != ".mlir" or not holds_collectives(file):
        wanted = "MLIR with collectives; for an annotated graph: shardplan partition --optimize"
        raise InvalidRequest("no program of collectives", where=str(file), wanted=wanted)
    return read_spmd(file)


def _find_passes(names: Sequence[str] | None) -> list[str]:
    for name in names or ():
        if name not in PASS_NAMES:
            raise InvalidRequest("no such pass", where="--pass", got=name, wanted=f"one of {', '.join(PASS_NAMES)}")
    return [PASS_NAMES[name] for name in names or ()]
