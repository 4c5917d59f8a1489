"""Reads rows that describe training steps: the sizes of the model, the device, and the layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.choose.hardware import Hardware
from planner.errors import InvalidRequest
from planner.usecases.predict_rows import DTYPES, RowProfiles
from planner.usecases.steps.shapes import ModelShape, read_shape, read_size
from planner.usecases.steps.stacks import find_stack, load_stacks

MEMORY_SIZES = {"a100-40-sxm": 40 * 10**9, "a100-sxm-40": 40 * 10**9, "v100-16-sxm": 16 * 10**9}
"""Parts of a profile's device that differ in the size of their memory, in bytes."""
DEVICE_PARTS = {
    "a100-80-sxm": "a100-sxm",
    "a100-40-sxm": "a100-sxm",
    "a100-80-pcie": "a100-pcie-80",
    "a100-40-pcie": "a100-pcie-40",
    "a100-sxm-40": "a100-sxm",
    "a100-sxm-80": "a100-sxm",
    "a800-80": "a100-sxm",
    "v100-16-sxm": "v100-sxm",
    "v100-32-sxm": "v100-sxm",
}
REMAT = {
    "none": "none",
    "full": "full",
    "selective": "attention",
    "selective (attention core)": "attention",
    "minimal_flash": "attention",
}
PEAKS = {"fp8": "f8e4m3", "bf16": "bf16", "f16": "f16", "f32": "f32"}
"""Precisions of a step, and the element type of a profile that each needs."""
UNSTATED_SEQUENCE = 2048
OPEN_FIELDS = ("micro_batch", "seq", "remat", "precision")
"""Fields that a row may leave out."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A training step.

    data           devices that split the batch; `fsdp` of them also split all parameters
    state_devices  devices that split the optimizer's states
    micro_batch    sequences of one micro batch on one device group, `micro_batches` of them in a step
    dtype          of products; fp8 steps compute all else in bf16
    stack          the software, whose stage of ZeRO is meant where the row states none
    """

    shape: ModelShape
    hardware: Hardware
    memory_bytes: int
    devices: int
    data: int
    fsdp: int
    state_devices: int
    zero: int
    tp: int
    stages: int
    cp: int
    ep: int
    virtual_stages: int
    is_sequence_parallel: bool
    micro_batch: int
    micro_batches: int
    seq: int
    dtype: str
    remat: str
    stack: str
    assumed: tuple[str, ...]

    @property
    def tokens(self) -> float:
        """Tokens of a micro batch on one device."""
        return self.micro_batch * self.seq / self.cp

    @property
    def layers(self) -> float:
        """Layers of a stage, on average."""
        return self.shape.layers / self.stages


def read_step_row(row: object, profiles: RowProfiles) -> StepRow:
    """Read a row. Raises InvalidRequest."""
    if not isinstance(row, Mapping):
        raise InvalidRequest("a row", got=type(row).__name__, wanted="a JSON object")
    layout = row.get("layout")
    if not isinstance(layout, Mapping):
        raise InvalidRequest("layout", got=layout, wanted="an object with dp, tp, pp")
    hardware, memory_bytes = _read_device(row, profiles)
    shape, assumed = read_shape(row)
    devices, seq = read_size(row, "devices"), read_size(row, "seq", UNSTATED_SEQUENCE)
    tp, stages, cp = (read_size(layout, name, 1) for name in ("tp", "pp", "cp"))
    stack = find_stack(" ".join(str(row.get(name) or "").lower() for name in ("stack", "repo", "source")))
    zero = _read_zero(layout, load_stacks()[stack].zero_stage, stages)
    data, fsdp = _read_data({**layout, "zero_stage": zero}, devices, tp * stages * cp)
    micro, micro_batches = _read_batch(row, data)
    _check_layout(shape, layout, tp=tp, stages=stages)
    states = read_size(row, "zero_group", data) if zero in (1, 2) else fsdp
    return StepRow(
        shape=shape,
        hardware=hardware,
        memory_bytes=memory_bytes,
        devices=devices,
        data=data,
        fsdp=fsdp,
        state_devices=min(states, data),
        zero=zero,
        tp=tp,
        stages=stages,
        cp=cp,
        ep=_read_experts(layout, shape, devices // stages),
        virtual_stages=read_size(layout, "virtual_stages", 1),
        is_sequence_parallel=bool(layout.get("sequence_parallel")) and tp > 1,
        micro_batch=micro,
        micro_batches=micro_batches,
        seq=seq,
        dtype=_read_dtype(row, hardware),
        remat=_read_remat(row),
        stack=stack,
        assumed=(*assumed, *(name for name in OPEN_FIELDS if row.get(name) is None)),
    )


def _read_device(row: Mapping[str, Any], profiles: RowProfiles) -> tuple[Hardware, int]:
    """Return the profile of a row's device, and the bytes of its memory."""
    name = row.get("device")
    hardware = profiles.find(DEVICE_PARTS.get(name, name) if isinstance(name, str) else name)
    own = hardware.memory_bytes
    return hardware, own if profiles.every else MEMORY_SIZES.get(str(name), own)


def _read_zero(layout: Mapping[str, Any], default: int, stages: int) -> int:
    """Return the stage of ZeRO; unstated, with pipeline stages at most 1, as gradients are kept over micro batches."""
    zero = (min(default, 1) if stages > 1 else default) if layout.get("zero_stage") is None else layout["zero_stage"]
    if isinstance(zero, bool) or zero not in (0, 1, 2, 3):
        raise InvalidRequest("zero_stage", where="layout", got=zero, wanted="0, 1, 2 or 3")
    return int(zero)


def _read_data(layout: Mapping[str, Any], devices: int, others: int) -> tuple[int, int]:
    """Return the devices that split the batch, and those of them that split the parameters."""
    if devices % others:
        raise InvalidRequest("devices", got=devices, wanted=f"a multiple of tp * pp * cp = {others}")
    data, fsdp = devices // others, read_size(layout, "fsdp", 1)
    dp = read_size(layout, "dp", data)
    if data not in (dp, dp * fsdp):
        raise InvalidRequest("devices", got=devices, wanted=f"dp * tp * pp * cp = {dp * others}")
    if data % fsdp:
        raise InvalidRequest("fsdp", where="layout", got=fsdp, wanted=f"a divisor of dp = {data}")
    return data, data if layout["zero_stage"] == 3 and fsdp == 1 else fsdp


def _read_batch(row: Mapping[str, Any], data: int) -> tuple[int, int]:
    """Return the sequences of a micro batch, all of a device group if unstated, and the micro batches of a step."""
    batch = read_size(row, "global_batch")
    micro = read_size(row, "micro_batch", max(1, batch // data))
    if batch % (micro * data):
        raise InvalidRequest("global_batch", got=batch, wanted=f"a multiple of micro_batch * dp = {micro * data}")
    return micro, batch // (micro * data)


def _check_layout(shape: ModelShape, layout: Mapping[str, Any], *, tp: int, stages: int) -> None:
    if shape.layers < stages:
        raise InvalidRequest("layout.pp", got=stages, wanted=f"at most layers = {shape.layers}")
    if shape.hidden < tp:
        raise InvalidRequest("layout.tp", got=tp, wanted=f"at most hidden = {shape.hidden}")


def _read_experts(layout: Mapping[str, Any], shape: ModelShape, devices: int) -> int:
    ep = read_size(layout, "ep", 1)
    if ep > max(1, min(shape.experts, devices)):
        wanted = f"at most {max(1, min(shape.experts, devices))}, the experts or the devices of a stage"
        raise InvalidRequest("layout.ep", got=ep, wanted=wanted)
    return ep


def _read_dtype(row: Mapping[str, Any], hardware: Hardware) -> str:
    """Return the element type of products.

    Unstated is the first of `PEAKS` that the device has: published tables that leave it out are of fp8 recipes.
    """
    name, peaks = row.get("precision"), hardware.peak_flops
    if name is None:
        return next(dtype for dtype, peak in PEAKS.items() if peak in peaks)
    word = name.lower().replace("-", " ").removeprefix("te ").split() if isinstance(name, str) else []
    dtype = DTYPES.get(word[0], word[0]) if word else None
    dtype = "fp8" if dtype and dtype.startswith("fp8") else dtype
    if dtype not in PEAKS:
        raise InvalidRequest("precision that is not priced", got=name, wanted="f32, f16, bf16 or fp8")
    if PEAKS[dtype] not in peaks:
        wanted = f"one of {', '.join(peaks)}"
        raise InvalidRequest("precision that the device lacks", where=hardware.name, got=name, wanted=wanted)
    return dtype


def _read_remat(row: Mapping[str, Any]) -> str:
    name = row.get("remat")
    if name is None:
        return "none"
    if not isinstance(name, str) or name not in REMAT:
        raise InvalidRequest("remat", got=name, wanted=f"one of {', '.join(REMAT)}")
    return REMAT[name]
