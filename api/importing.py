"""`import`: other people's models as graph documents, a command for each framework."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from api.console import Json, print_json
from planner.documents.writing import check_writable, write_json
from planner.frontends import zoo
from planner.frontends.torch import import_torch

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.command("torch")
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


@app.command("zoo")
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
        print_json({"name": document["name"], **counts, "digest": identity})
    else:
        typer.echo(f"{output}: {document['name']}, {counts['nodes']} nodes, {counts['inputs']} inputs, {identity[:12]}")
