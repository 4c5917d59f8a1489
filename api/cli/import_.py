"""`import`: turns models into graph documents, with a command per framework."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import JsonOption, print_json
from api.cli.parameters import with_options
from api.options import ModelOptions, TrainingOptions
from api.units import parse_sizes
from planner.documents.json_writer import check_writable, write_json
from planner.errors import InvalidRequest
from planner.frontends import stablehlo, zoo
from planner.frontends.onnx import import_onnx
from planner.frontends.torch import import_torch
from planner.frontends.uncovered_ops import UnknownOpWarning

Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", help="name=kind: the kind of an argument, where the guess is wrong; may be repeated."),
]

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.command("torch")
@with_options
def import_from_torch(
    model: Annotated[
        str,
        typer.Option(
            help="transformers:<type>, such as gpt2, bert, vit, t5; module:function, a function of your own; or a .pt2 "
            "file that torch.export.save wrote."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The graph document to write.")],
    training: TrainingOptions,
    *,
    batch: Annotated[int, typer.Option(min=1, help="Sequences, or images, per batch.")] = 1,
    seq: Annotated[int | None, typer.Option(min=1, help="Tokens per sequence of a text model.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Number of layers, instead of the configuration's.")] = None,
    dtype: Annotated[str, typer.Option(help="Element type of the parameters.")] = "f32",
    config: Annotated[
        list[str] | None,
        typer.Option(help="name=value of the model's configuration, such as hidden_size=8192; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Capture a PyTorch model, forward pass or training step, without its weights (extra: torch).

    --model module:function calls function(batch=..., seq=...) of a module in the current folder. It returns
    (module, args, kwargs): a torch.nn.Module and its example inputs, all made on the meta device; with --train, the
    module returns its loss, and parameters that do not require a gradient are not updated. In my_model.py:

    \b
      def step(batch, seq):
          return MyModel(), (torch.zeros(batch, seq, dtype=torch.int64),), {}

    \b
      shardplan import torch --model my_model:step --batch 8 --seq 128 --train adamw -o step.json
    """
    sys.path.insert(0, "")  # module:function is the user's own, looked for where the command runs
    settings = _parse_config(config)
    build_document = partial(
        import_torch,
        model,
        batch=batch,
        seq=seq,
        layers=layers,
        dtype=dtype,
        config=settings,
        **training.model_dump(),
    )
    _write_graph(build_document, output, as_json)


def _parse_config(texts: list[str] | None) -> dict[str, Any]:
    """Return configuration values, parsed as JSON where they are JSON, else as text."""
    pairs = [text.partition("=") for text in texts or ()]
    if unnamed := [name for name, equals, _ in pairs if not (name and equals)]:
        raise InvalidRequest("config", got=unnamed[0], wanted="name=value, such as hidden_size=8192")
    return {name: _parse_value(text) for name, _, text in pairs}


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@app.command("jax")
def import_from_jax(
    function: Annotated[
        str, typer.Argument(help="module:function, which returns (f, *arguments); shapes may stand for arguments.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The graph document to write.")],
    kind: Kinds = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Lower a JAX function without arrays (extra: jax)."""
    sys.path.insert(0, "")
    _write_graph(partial(stablehlo.import_jax, function, _parse_kinds(kind)), output, as_json)


@app.command("stablehlo")
def import_from_stablehlo(
    file: Annotated[Path, typer.Argument(help="The text of jax.jit(f).lower(...).as_text() (.mlir or .mlir.gz).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The graph document to write.")],
    kind: Kinds = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Read StableHLO text (extra: jax)."""
    _write_graph(partial(stablehlo.import_file, file, _parse_kinds(kind)), output, as_json)


def _parse_kinds(texts: list[str] | None) -> dict[str, str]:
    pairs = [text.rpartition("=") for text in texts or ()]
    if unnamed := [kind for name, _, kind in pairs if not name]:
        raise InvalidRequest("kind of an argument", got=unnamed[0], wanted="name=kind, such as images=input")
    return {name: kind for name, _, kind in pairs}


@app.command("onnx")
def import_from_onnx(
    file: Annotated[Path, typer.Argument(help="An .onnx file; its external data may be missing.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The graph document to write.")],
    dim: Annotated[list[str] | None, typer.Option(help="batch=8: the size of a symbolic dim; may be repeated.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Read an ONNX model, without its weights (extra: onnx)."""
    _write_graph(partial(import_onnx, file, parse_sizes(dim or ())), output, as_json)


@app.command("zoo")
@with_options
def import_from_zoo(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(zoo.MODELS)}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The graph document to write.")],
    options: ModelOptions,
    *,
    as_json: JsonOption = False,
) -> None:
    """Write a published model, or one of its family in other sizes: forward pass or training step."""
    _write_graph(partial(zoo.import_zoo, name, **options.model_dump()), output, as_json)


def _write_graph(build_document: Callable[[], dict[str, Any]], output: Path, as_json: bool) -> None:
    """Write the document that `build_document` returns, and print a summary. The file is checked before the work."""
    check_writable(output)
    with _warnings_on_stderr():
        document = build_document()
    identity = write_json(output, document)
    counts = {"nodes": len(document["nodes"]), "inputs": len(document["inputs"])}
    if as_json:
        print_json({"name": document["name"], **counts, "digest": identity})
    else:
        typer.echo(f"{output}: {document['name']}, {counts['nodes']} nodes, {counts['inputs']} inputs, {identity[:12]}")


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Print every op without a row on standard error, once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnknownOpWarning)
        yield
    unknown = [warning for warning in caught if issubclass(warning.category, UnknownOpWarning)]
    for line in dict.fromkeys(str(warning.message) for warning in unknown):
        typer.echo(f"warning: {line}", err=True)
