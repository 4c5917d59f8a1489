"""Graphs from PyTorch: a model is exported without weights and its ATen calls become ops of ours.

models       a model's name -> an exported program, on the meta device
document     an exported program -> a graph document
translation  node by node: inputs, calls, and what could not be translated
reshapes     which reshapes go, so that the dims they hide can be split
aten         the table: ATen overload -> row; rows stand in images, pointwise, products and views
call         one ATen call, as a row sees it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from planner.errors import InvalidRequest

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["graph_document", "import_torch"]


def import_torch(
    model: str,
    *,
    batch: int,
    seq: int,
    layers: int | None = None,
    dtype: str = "f32",
    config: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """The graph document of the forward pass of `model` on `batch` sequences of `seq` tokens.

    `model` is `transformers:<model type>`, a causal language model with the default configuration of its type
    (`layers`, `dtype` and the entries of `config` override it), or `module:function`, called as
    function(batch=batch, seq=seq) on the meta device for (module, args, kwargs). No weight is allocated or
    downloaded.

    Raises InvalidRequest for a model that cannot be built, InvalidGraph for one that cannot be traced and
    UnsupportedOp for ATen calls outside the table.
    """
    try:
        from planner.frontends.torch import models

        overrides = {} if config is None else dict(config)
        program = models.exported(model, batch, seq, models.Options(layers, dtype, overrides))
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from missing
    return graph_document(program, model.rpartition(":")[2])


def graph_document(program: ExportedProgram, name: str) -> dict[str, Any]:
    """The graph document of any exported program. Raises InvalidGraph and UnsupportedOp."""
    from planner.frontends.torch import document

    return document.graph_document(program, name)


def _not_installed(missing: ModuleNotFoundError) -> Exception:
    if missing.name not in ("torch", "transformers"):
        return missing
    what = f"{missing.name} is not installed"
    return InvalidRequest(what, where="import torch", wanted="pip install shardplan[torch]")
