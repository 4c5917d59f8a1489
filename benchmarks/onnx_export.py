"""Exports a model of transformers with torch.onnx.export; its external file of weights does not exist."""

from __future__ import annotations

import warnings
from typing import Any

SMALL = 1024
"""Tensors of at most this many elements stay in the model: shapes are computed from them."""


def exported(kind: str, batch: int, seq: int) -> Any:
    """Return the ModelProto of a bf16 forward pass in the default configuration; the export allocates the weights."""
    import torch
    from onnx_ir import ExternalTensor, serde
    from transformers import AutoConfig, AutoModelForCausalLM

    class Logits(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            return self.model(ids, use_cache=False)[0]

    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind), dtype=torch.bfloat16)
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        ids = torch.zeros(batch, seq, dtype=torch.long)
        program = torch.export.export(Logits(model.eval()), (ids,), strict=False)
        made = torch.onnx.export(program, dynamo=True, verbose=False).model
    for name, value in made.graph.initializers.items():
        held = value.const_value
        if held is not None and held.size > SMALL:
            value.const_value = ExternalTensor("nowhere", 0, held.nbytes, held.dtype, name=name, shape=held.shape)
    return serde.serialize_model(made)
