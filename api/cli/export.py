"""`export`: writes a plan's program in another tool's language."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.documents.json_reader import read_json
from planner.documents.json_writer import check_writable
from planner.documents.pipelines import is_pipeline, load_stage_plan, parse_pipeline
from planner.documents.plans import parse_plan
from planner.documents.programs import load_program
from planner.errors import InvalidRequest
from planner.export.formats import FORMATS, export_program
from planner.ir.program import Program
from planner.onnx import annotated_model
from planner.pipeline_stages.export.formats import export_stages


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
    raw = read_json(plan)
    if is_pipeline(raw):
        if model is not None:
            raise InvalidRequest("--model", got=str(model), wanted="a plan without pipeline stages")
        _write(export_stages(load_stage_plan(parse_pipeline(raw, str(plan))), syntax), output)
        return
    program = load_program(parse_plan(raw, str(plan)))
    if syntax == "onnx":
        _annotate_onnx(program, model, output)
        return
    if model is not None:
        raise InvalidRequest("--model", got=str(model), wanted=f"--format onnx, not {syntax}")
    _write(export_program(program, syntax), output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text)


def _annotate_onnx(program: Program, model: Path | None, output: Path | None) -> None:
    if model is None or output is None:
        got = "no --model" if model is None else "no --output"
        raise InvalidRequest("onnx is written onto a model", got=got, wanted="--model MODEL.onnx -o ANNOTATED.onnx")
    output.write_bytes(annotated_model(program, model, output.parent))
