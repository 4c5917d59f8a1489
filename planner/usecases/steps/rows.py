"""Reads rows that describe training steps: the sizes of the model, the device, and the layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.choose.hardware import load_profile
from planner.errors import InvalidRequest
from planner.frontends.zoo.models import Model
from planner.usecases.predict_rows import DTYPES, find_device

LARGEST = 1 << 24
MEMORY_SIZES = {"a100-40-sxm": 40 * 10**9, "a100-40-pcie": 40 * 10**9, "a100-sxm-40": 40 * 10**9}
"""Parts of a profile's device that differ in the size of their memory, in bytes."""
DEVICE_PARTS = {
    "a100-80-sxm": "a100-sxm",
    "a100-40-sxm": "a100-sxm",
    "a100-40-pcie": "a100-pcie-40",
    "a100-sxm-40": "a100-sxm",
    "a800-80": "a100-sxm",
    "v100-32-sxm": "v100-sxm",
}
REMAT = {None: "none", "none": "none", "full": "full", "selective (attention core)": "attention"}
UNSTATED_VOCABULARY = 51200


@dataclass(frozen=True, slots=True)
class StepRow:
    """A training step.

    micro_batch   sequences of one micro batch on one device group
    micro_batches micro batches of a step
    data          devices that split the batch, `fsdp` of them also all parameters, or all optimizer states with `zero`
    """

    model: Model
    device: str
    memory_bytes: int
    data: int
    fsdp: int
    zero: int
    tp: int
    stages: int
    virtual_stages: int
    is_sequence_parallel: bool
    micro_batch: int
    micro_batches: int
    dtype: str
    remat: str
    assumed: tuple[str, ...]


def read_step_row(row: object, like: str | None) -> StepRow:
    """Read a row; `like` names the profile of devices that have none. Raises InvalidRequest."""
    if not isinstance(row, Mapping):
        raise InvalidRequest("a row", got=type(row).__name__, wanted="a JSON object")
    layout = row.get("layout")
    if not isinstance(layout, Mapping):
        raise InvalidRequest("layout", got=layout, wanted="an object with dp, tp, pp")
    device, memory_bytes = _read_device(row, like)
    if _read_size(layout, "cp", 1) > 1:
        raise InvalidRequest("ring attention over the sequence", where="layout.cp", got=layout["cp"], wanted="1")
    tp, stages, devices = _read_size(layout, "tp", 1), _read_size(layout, "pp", 1), _read_size(row, "devices")
    fsdp = _read_size(layout, "fsdp", 1)
    data = max(fsdp, _read_size(layout, "dp", max(1, devices // (tp * stages))))
    if data * tp * stages != devices:
        raise InvalidRequest("devices", got=devices, wanted=f"dp * tp * pp = {data * tp * stages}")
    micro, batch = _read_size(row, "micro_batch"), _read_size(row, "global_batch")
    if batch % (micro * data):
        raise InvalidRequest("global_batch", got=batch, wanted=f"a multiple of micro_batch * dp = {micro * data}")
    zero = layout.get("zero_stage") or 0
    if zero not in (0, 1, 2, 3):
        raise InvalidRequest("zero_stage", where="layout", got=zero, wanted="0, 1, 2 or 3")
    if fsdp > 1 and data % fsdp:
        raise InvalidRequest("fsdp", where="layout", got=fsdp, wanted=f"a divisor of dp = {data}")
    model, assumed = _read_model(row, stages)
    return StepRow(
        model=model,
        device=device,
        memory_bytes=memory_bytes,
        data=data,
        fsdp=data if zero == 3 and fsdp == 1 else fsdp,
        zero=zero,
        tp=tp,
        stages=stages,
        virtual_stages=_read_size(layout, "virtual_stages", 1),
        is_sequence_parallel=bool(layout.get("sequence_parallel")),
        micro_batch=micro,
        micro_batches=batch // (micro * data),
        dtype=_read_dtype(row, device),
        remat=_read_remat(row),
        assumed=(*assumed, *(("remat",) if row.get("remat") is None else ())),
    )


def _read_device(row: Mapping[str, Any], like: str | None) -> tuple[str, int]:
    """Return the profile of a row's device, and the bytes of its memory."""
    name = row.get("device")
    device = find_device(DEVICE_PARTS.get(name, name) if isinstance(name, str) else name, like)
    return device, MEMORY_SIZES.get(str(name), load_profile(device).memory_bytes)


def _read_model(row: Mapping[str, Any], stages: int) -> tuple[Model, tuple[str, ...]]:
    """Return the sizes of the stage with the most layers, and the fields that were assumed."""
    shape = row.get("shape")
    if not isinstance(shape, Mapping):
        raise InvalidRequest("shape", got=shape, wanted="an object with layers, hidden, heads, ffn, vocab")
    if shape.get("experts") or shape.get("attention"):
        raise InvalidRequest("experts or latent attention, which are not priced", where="shape", wanted="a dense model")
    layers, heads = _read_size(shape, "layers"), _read_size(shape, "heads")
    if layers < stages:
        raise InvalidRequest("layout.pp", got=stages, wanted=f"at most layers = {layers}")
    hidden, seq = _read_size(shape, "hidden"), _read_size(row, "seq")
    kv_heads = _read_size(shape, "kv_heads", heads)
    model = Model(
        "llama" if shape.get("gated") else "gpt",
        -(-layers // stages),
        hidden,
        heads,
        kv_heads if shape.get("gated") else heads,
        _read_size(shape, "ffn", 4 * hidden),
        _read_size(shape, "vocab", UNSTATED_VOCABULARY),
        seq,
    )
    return model, tuple(name for name in ("ffn", "vocab") if not shape.get(name))


def _read_dtype(row: Mapping[str, Any], device: str) -> str:
    name = row.get("precision")
    dtype = DTYPES.get(name, name) if isinstance(name, str) else name
    if dtype not in ("f32", "f16", "bf16"):
        raise InvalidRequest("precision that is not priced", got=name, wanted="f32, f16 or bf16")
    peaks = load_profile(device).peak_flops
    if dtype not in peaks:
        wanted = f"one of {', '.join(peaks)}"
        raise InvalidRequest("precision that the device lacks", where=device, got=name, wanted=wanted)
    return dtype


def _read_remat(row: Mapping[str, Any]) -> str:
    name = row.get("remat")
    if not (name is None or isinstance(name, str)) or name not in REMAT:
        raise InvalidRequest("remat", got=name, wanted=f"one of {', '.join(each for each in REMAT if each)}")
    return REMAT[name]


def _read_size(row: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = default if row.get(name) is None else row[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise InvalidRequest("number", where=name, got=value, wanted=f"a whole number from 1 to {LARGEST}")
    return value
