"""Files of torch.export.save: an archive (.pt2), or the JSON of its graph alone.

Only the JSON is read, and the archive's table of which weights are one tensor. No weight is loaded and nothing is
unpickled. What torch's reader would run as code is refused or left out (`untrusted_json`). All tensors are on the meta
device.
"""

from __future__ import annotations

import io
import json
import zipfile
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
from planner.frontends.torch.untrusted_json import check_document

MAX_JSON_BYTES = 1 << 27
MAX_JSON_VALUES = 1 << 22
"""Some fifty thousand nodes. They are counted before they are parsed: a small archive may inflate to millions."""
MAX_TABLE_BYTES = 1 << 24
"""The table of an archive's weights has some 400 bytes for each."""
WANTED = "a file of torch.export.save (.pt2), or its models/model.json"


def read_program(path: Path) -> ExportedProgram:
    """Read a file. Raises InvalidGraph if it is no exported program or has another version of torch's schema."""
    try:
        return parse_program(path.read_bytes(), str(path))
    except OSError as error:
        raise InvalidGraph("file", where=str(path), got=error.strerror, wanted="a readable file") from None


def parse_program(data: bytes, name: str) -> ExportedProgram:
    """Return the program in an archive or in its JSON. Raises InvalidGraph."""
    try:
        text, same = _read_archive(data) if zipfile.is_zipfile(io.BytesIO(data)) else (data, {})
        if text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_JSON_VALUES:
            raise ValueError(f"a graph of more than {MAX_JSON_VALUES} values")
        document = json.loads(text)
        check_document(document)
        document["guards_code"] = []  # Python that checks inputs at a call
        state = _restore_state(document["graph_module"], same)
        schema = _bytes_to_dataclass(Schema, json.dumps(document).encode())
        return ExportedProgramDeserializer().deserialize(schema, state["parameters"], state["constants"])
    except Exception as failure:  # torch's reader raises any exception on malformed input
        got = f"{type(failure).__name__}: {failure}".splitlines()[0]
        raise InvalidGraph("not an exported program", where=name, got=got, wanted=WANTED) from failure


def _read_archive(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the JSON, and the file of every weight by the weight's name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (graph,) = (entry for entry in archive.infolist() if entry.filename.endswith("models/model.json"))
        tables = [entry for entry in archive.infolist() if entry.filename.endswith("model_weights_config.json")]
        listed = json.loads(_read_entry(archive, tables[0], MAX_TABLE_BYTES))["config"] if tables else {}
        same = {name: entry["path_name"] for name, entry in listed.items() if _has_weights(entry)}
        return _read_entry(archive, graph, MAX_JSON_BYTES), same


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Return the content of a file. No more is inflated than the archive says, whatever its bytes would become."""
    if entry.file_size > max_bytes:
        raise ValueError(f"{entry.filename} of {entry.file_size} bytes, more than {max_bytes}")
    return archive.read(entry)


def _has_weights(entry: Mapping[str, Any]) -> bool:
    """Return whether a weight has a file of its own; tensors without storage share an empty one."""
    return bool(entry["tensor_meta"]["device"]["type"] != "meta")


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
