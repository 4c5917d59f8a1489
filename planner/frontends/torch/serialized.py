"""Files of torch.export.save: an archive (.pt2), or the JSON of its graph alone.

Only the JSON is read, and the archive's table of which weights are one tensor. No weight is loaded and nothing is
unpickled. What torch's reader would run as code is refused or left out (`untrusted_json`). All tensors are on the meta
device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch._export.serde.schema import ExportedProgram as Schema
from torch._export.serde.serialize import (
    _SERIALIZE_TO_TORCH_DTYPE,
    ExportedProgramDeserializer,
    _bytes_to_dataclass,
)
from torch.export import ExportedProgram

from planner.errors import InvalidGraph
from planner.frontends.torch.saved_json import SavedProgram, malformed_refused, read_saved


def read_program(path: Path) -> ExportedProgram:
    """Read a file. Raises InvalidGraph if it is no exported program or has another version of torch's schema."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidGraph("file", where=str(path), got=error.strerror, wanted="a readable file") from None
    return parse_program(read_saved(data, str(path)), str(path))


def parse_program(saved: SavedProgram, name: str) -> ExportedProgram:
    """Return the program of a file that was read. Raises InvalidGraph."""
    with malformed_refused(name):
        document = saved.document | {"guards_code": []}  # Python that checks inputs at a call
        state = _restore_state(document["graph_module"], saved.weight_files)
        schema = _bytes_to_dataclass(Schema, json.dumps(document).encode())
        return ExportedProgramDeserializer().deserialize(schema, state["parameters"], state["constants"])


def _restore_state(module: Mapping[str, Any], same: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return tensors without storage by name; names of the same tensor share one object."""
    tensors: dict[Any, torch.Tensor] = {}
    state: dict[str, dict[str, Any]] = {"parameters": {}, "constants": {}}
    for spec in module["signature"]["input_specs"]:
        ((kind, entry),) = spec.items()
        name = entry.get("parameter_name") or entry.get("buffer_name") or entry.get("tensor_constant_name")
        if name is not None:
            fresh = _tensor(module["graph"]["tensor_values"][entry["arg"]["name"]], kind == "parameter")
            tensor = tensors.setdefault((same.get(name, name), fresh.shape, fresh.stride()), fresh)
            is_saved = kind != "tensor_constant" and entry.get("persistent", True)
            state["parameters" if is_saved else "constants"][name] = tensor
    return state


def _tensor(value: Mapping[str, Any], trained: bool) -> torch.Tensor:
    sizes, strides = ([each["as_int"] for each in value[key]] for key in ("sizes", "strides"))
    tensor = torch.empty_strided(sizes, strides, dtype=_SERIALIZE_TO_TORCH_DTYPE[value["dtype"]], device="meta")
    return torch.nn.Parameter(tensor, value["requires_grad"]) if trained else tensor
