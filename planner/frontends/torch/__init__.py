"""Graphs from PyTorch: a model is exported without weights, and its ATen calls become ops of the op table.

capture         a model's name -> an exported program, on the meta device
traceable       code of torch that cannot be traced, replaced meanwhile
complex_pairs   complex numbers as pairs of real ones
pattern_match   patterns of ATen nodes and how they match
patterns        small pieces of a graph that are one op: found by structure and replaced
inline_regions  regions of a graph under another mode, inlined
custom_ops      the fused ops in torch, with gradients that have rows
own_gradients   gradients that the model's code writes itself
joint_graph     an exported loss -> the graph of a training step, forward and backward
saved_json      a file of torch.export.save -> its JSON, checked without torch
serialized      that JSON -> an exported program
exported_graph  what was captured either way: a graph, its inputs and results
translation     the walk, node by node
gradient_table  ATen overload -> row, of the calls that autograd emits
element_table   ATen overload -> row, of the calls that compute element by element
op_table        ATen overload -> row, of all calls; rows are in backward_ops, batch_norm, conv_pool, image_backward,
                indexing, losses, matmul_attention, pointwise, random_ops and views
aten_call       one ATen call, as a row sees it
decompose       a call without a row -> the smaller calls that torch computes it from
smaller_calls   such decompositions that torch lacks
prims           torch's primitive ops, in which its decompositions end, as ATen calls
location        the module and the source line of a call
document        a captured graph -> a graph document, with the optimizer's update
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InvalidRequest
from planner.frontends.ring_attention import offer_rings
from planner.frontends.torch.saved_json import read_saved
from planner.frontends.zoo.update import MasterMode, Training, parse_training

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
    clip_grad_norm: float | None = None,
    master: MasterMode = "auto",
    ring_attention: bool = False,
) -> dict[str, Any]:
    """Return the graph document of `model` on `batch` sequences of `seq` tokens.

    `model` is one of

    * `transformers:<model type>`: the default configuration of the type, overridden by `layers`, `dtype` and `config`;
    * `module:function`: function(batch=batch, seq=seq) is called on the meta device and returns (module, args, kwargs);
    * a file of torch.export.save (.pt2, or the .json inside), whose sizes are fixed.

    No weight is allocated, read or downloaded. `train` names the optimizer of a training step, such as `adamw` or
    `adamw:lr=3e-4` (`planner.frontends.zoo.OPTIMIZERS`), for which a module of your own returns its loss; None means a
    forward pass. Parameters that do not require a gradient are not updated. `clip_grad_norm` and `master` are those of
    `planner.frontends.zoo.update.Training`. With `ring_attention` blocks of keys and values may pass round the devices
    that split a sequence.

    Raises InvalidRequest for a model that cannot be built, InvalidGraph for one that cannot be traced and
    UnsupportedOp for ATen calls that cannot be expressed. Warns of calls that are planned replicated.
    """
    training = parse_training(train, clip_grad_norm, master)
    try:
        from planner.frontends.torch import capture, serialized

        if model.endswith(FILES):
            name, program = Path(model).stem, serialized.read_program(Path(model))
        else:
            options = capture.CaptureOptions(layers, dtype, {} if config is None else dict(config))
            name = model.rpartition(":")[2]
            program = capture.export_model(model, batch, seq, options=options, train=training is not None)
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    document = build_graph_document(program, name, training)
    return offer_rings(document) if ring_attention else document


def import_serialized(data: bytes, name: str) -> dict[str, Any]:
    """Return the graph document of the bytes of a .pt2 archive or of the JSON inside. Raises as import_torch does."""
    saved = read_saved(data, name)
    try:
        from planner.frontends.torch import serialized
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    return build_graph_document(serialized.parse_program(saved, name), name)


def build_graph_document(program: ExportedProgram, name: str, training: Training | None = None) -> dict[str, Any]:
    """Return the graph document of an exported program; with `training`, its one result is the loss.

    Training consumes the program: it cannot be used afterwards. Raises InvalidGraph and UnsupportedOp.
    """
    from planner.frontends.torch import document, exported_graph, joint_graph

    graph = (joint_graph.differentiate if training else exported_graph.from_program)(program, name)
    return document.build_graph_document(graph, name, training)


def build_module_document(
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    train: str | None = None,
    clip_grad_norm: float | None = None,
    master: MasterMode = "auto",
) -> dict[str, Any]:
    """Return the graph document of a torch.nn.Module on example inputs; with `train`, the module returns its loss.

    Options are those of import_torch. Raises InvalidRequest, InvalidGraph and UnsupportedOp.
    """
    from planner.frontends.torch import capture

    name, training = type(module).__name__, parse_training(train, clip_grad_norm, master)
    return build_graph_document(capture.trace_module(module, args, kwargs, name=name), name, training)


def _missing_package_error(missing: ModuleNotFoundError) -> Exception:
    if missing.name not in ("torch", "transformers"):
        return missing
    what = f"{missing.name} is not installed"
    return InvalidRequest(what, where="import torch", wanted="pip install shardplan[torch]")
