"""Graphs from PyTorch: a model is exported without weights and its ATen calls become ops of ours.

models       a model's name -> an exported program, on the meta device
patterns     small pieces of a graph that are one op: found by structure, and replaced
regions      parts of a graph under another mode, written out
fused        those ops in torch, with the gradients they have as rows
joint        an exported loss -> the graph of a training step, forward and backward
serialized   what torch.export.save wrote -> an exported program
captured     what was captured, one way or the other: a graph, its inputs and results
translation  node by node: inputs, calls, and what could not be translated
aten         the table: ATen overload -> row; rows stand in derivatives, images, losses, pointwise, positions, products
             and views
call         one ATen call, as a row sees it
unknown      calls without a row
document     what was captured -> a graph document, with the optimizer's update
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InvalidRequest
from planner.frontends.zoo import OPTIMIZERS

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FILES = (".pt2", ".json")

__all__ = ["build_graph_document", "build_module_document", "import_serialized", "import_torch"]


def import_torch(
    model: str,
    *,
    batch: int = 1,
    seq: int | None = None,
    layers: int | None = None,
    dtype: str = "f32",
    config: Mapping[str, object] | None = None,
    train: str | None = None,
) -> dict[str, Any]:
    """The graph document of `model` on `batch` sequences of `seq` tokens: a forward pass, or a training step.

    `model` is `transformers:<model type>`, with the default configuration of its type (`layers`, `dtype` and the
    entries of `config` override it), or `module:function`, called as function(batch=batch, seq=seq) on the meta device
    for (module, args, kwargs), or a file that torch.export.save wrote (.pt2, or the .json in it), whose sizes are what
    they are. No weight is allocated, read or downloaded. `train` is the optimizer of a training step
    (sgd, sgd-momentum or adam); a module of the user's own then returns its loss.

    Raises InvalidRequest for a model that cannot be built, InvalidGraph for one that cannot be traced and
    UnsupportedOp for ATen calls whose arguments cannot be said. Warns of calls that are planned replicated.
    """
    if train not in (None, *OPTIMIZERS):
        raise InvalidRequest("train", got=train, wanted=f"one of {', '.join(OPTIMIZERS)}")
    try:
        from planner.frontends.torch import capture, serialized

        if model.endswith(FILES):
            return build_graph_document(serialized.read_program(Path(model)), Path(model).stem, train)
        options = capture.CaptureOptions(layers, dtype, {} if config is None else dict(config))
        program = capture.export_model(model, batch, seq, options=options, train=train is not None)
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    return build_graph_document(program, model.rpartition(":")[2], train)


def import_serialized(data: bytes, name: str) -> dict[str, Any]:
    """The graph document of what torch.export.save wrote, the archive or the JSON in it. Raises as import_torch."""
    try:
        from planner.frontends.torch import serialized
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    return build_graph_document(serialized.parse_program(data, name), name)


def build_graph_document(program: ExportedProgram, name: str, train: str | None = None) -> dict[str, Any]:
    """The graph document of any exported program, whose one result is the loss where it is to be trained.

    A program that is trained is used up. Raises InvalidGraph and UnsupportedOp.
    """
    from planner.frontends.torch import document, exported_graph, joint_graph

    made = exported_graph.from_program(program, name) if train is None else joint_graph.differentiate(program, name)
    return document.build_graph_document(made, name, train)


def build_module_document(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, train: str | None = None
) -> dict[str, Any]:
    """The graph document of a torch.nn.Module on example inputs; what it returns is the loss where it is trained.

    Raises InvalidGraph and UnsupportedOp.
    """
    from planner.frontends.torch import capture

    name = type(module).__name__
    return build_graph_document(capture.trace_module(module, args, kwargs, name=name), name, train)


def _missing_package_error(missing: ModuleNotFoundError) -> Exception:
    if missing.name not in ("torch", "transformers"):
        return missing
    what = f"{missing.name} is not installed"
    return InvalidRequest(what, where="import torch", wanted="pip install shardplan[torch]")
