"""Reads rows that describe kernels: which device and class a row names, and the numbers of its shape."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.choose.hardware import Hardware, list_profiles, load_profile
from planner.choose.hardware.corrections import MAX_SECONDS
from planner.choose.hardware.op_classes import OP_CLASSES
from planner.choose.hardware.op_rates import FORMATS, SENT_BY
from planner.errors import InvalidRequest

Row = Mapping[str, Any]
LARGEST, MAX_DEVICES = 2.0**50, 2**20
DEVICE_ALIASES = {
    "a100": "a100-sxm",
    "a100-pcie": "a100-pcie-80",
    "a100-sxm4-40gb": "a100-sxm",
    "a100-sxm4-80gb": "a100-sxm",
    "b200": "b200-sxm",
    "b300": "b300-sxm",
    "gb200-sxm": "gb200",
    "gb300-sxm": "gb300",
    "h100": "h100-sxm",
    "h200": "h200-sxm",
    "h20-sxm": "h20",
    "p100-pcie-16": "p100-pcie",
    "rtx-pro-6000-server": "rtx-pro-6000",
    "tesla-t4": "t4",
    "v100": "v100-sxm",
    "v100-pcie-32": "v100-pcie",
    "v100-sxm2-32": "v100-sxm",
}
DTYPES = {"bfloat16": "bf16", "float16": "f16", "half": "f16", "float32": "f32", "fp32": "f32", "fp16": "f16"}
SKEW = {"balanced": 0.0, "uniform": 0.0, "power_law_1.01": 1.01, "power_law_1.2": 1.2}


@dataclass(frozen=True, slots=True)
class RowProfiles:
    """Which profile a row has: `every`, whatever device it names; else the built-in one of its device; else `like`."""

    like: Hardware | None = None
    every: Hardware | None = None

    def find(self, name: object) -> Hardware:
        """Return the profile of a row that names a device. Raises InvalidRequest that names the nearest one."""
        if self.every is not None:
            return self.every
        if not isinstance(name, str) or not name:
            raise InvalidRequest("a device", where="gpu", got=name, wanted="a name")
        plain = name.lower().replace("_", "-")
        plain = DEVICE_ALIASES.get(plain, plain)
        if plain in list_profiles():
            return load_profile(plain)
        if self.like is not None:
            return self.like
        nearest = difflib.get_close_matches(plain, list_profiles(), n=1, cutoff=0.0)[0]
        wanted = f"--like {nearest} or another one"
        raise InvalidRequest("device without a profile", where="gpu", got=name, wanted=wanted)


BUILT_IN = RowProfiles()


class KernelRow(NamedTuple):
    """A row that was read: profile, class, what is fitted apart within the class (element type or library), numbers."""

    hardware: Hardware
    op: str
    variant: str
    numbers: dict[str, float]


def read_row(row: object, profiles: RowProfiles) -> KernelRow:
    """Read a row. Raises InvalidRequest."""
    if not isinstance(row, Mapping):
        raise InvalidRequest("a row", got=type(row).__name__, wanted="a JSON object")
    op, variant, numbers = read_shape(row)
    hardware = profiles.find(row.get("gpu", row.get("device")))
    if op not in SENT_BY and FORMATS[variant][0] not in hardware.peak_flops:
        where, wanted = hardware.name, f"one of {', '.join(hardware.peak_flops)}"
        raise InvalidRequest("element type that the device lacks", where=where, got=variant, wanted=wanted)
    return KernelRow(hardware, op, variant, numbers)


def read_shape(row: Row) -> tuple[str, str, dict[str, float]]:
    """Return the class of a row, what is fitted apart within it, and its numbers. Raises InvalidRequest."""
    op = _read_op(row)
    numbers = {name: _read_number(row, name) for name in OP_CLASSES[op].columns}
    for name, default in OP_CLASSES[op].optional:
        numbers[name] = _read_skew(row) if name == "skew" else _read_number(row, name, default)
    _check_shape(op, numbers)
    return op, _read_variant(row, op), numbers


def _read_op(row: Row) -> str:
    op = row.get("op")
    if op in ("collective", "collectives"):
        op = row.get("kind")
    elif op == "deepep":
        op = row.get("kind", row.get("direction"))
    if op in ("dispatch", "combine"):
        op = f"deepep_{op}"
    if not isinstance(op, str) or op not in OP_CLASSES:
        raise InvalidRequest("unknown op", where="op", got=op, wanted=f"one of {', '.join(OP_CLASSES)}")
    return op


def _read_variant(row: Row, op: str) -> str:
    if op in SENT_BY:
        key, default = ("mode", "normal") if op.startswith("deepep") else ("library", "nccl")
        return str(row.get(key, default))
    default = "bf16" if op in ("gemm", "moe", "context_attention", "generation_attention") else "f32"
    dtype = row.get("dtype", default)
    dtype = DTYPES.get(dtype, dtype) if isinstance(dtype, str) else None
    if dtype not in FORMATS:
        raise InvalidRequest("element type", where="dtype", got=row.get("dtype"), wanted=f"one of {', '.join(FORMATS)}")
    return dtype


def _read_number(row: Row, name: str, default: float | None = None) -> float:
    value = row.get(name, default)
    least = 1 if default is None else 0
    is_number = isinstance(value, (int, float)) and (name == "gated" or not isinstance(value, bool))
    if not is_number or not least <= value <= LARGEST:  # NaN is in no range
        raise InvalidRequest("number", where=name, got=value, wanted=f"{least} to {LARGEST:.0f}")
    return float(value)


def read_measured_s(row: Row, name: str) -> float:
    """Return the measured seconds of a row. Raises InvalidRequest."""
    seconds = row.get(name)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= MAX_SECONDS:
        raise InvalidRequest("number", where=name, got=seconds, wanted=f"above 0, at most {MAX_SECONDS:.0f} s")
    return float(seconds)


def _read_skew(row: Row) -> float:
    name = row.get("distribution", "balanced")
    if not isinstance(name, str) or name not in SKEW:
        raise InvalidRequest("distribution", got=name, wanted=f"one of {', '.join(SKEW)}")
    return SKEW[name]


def _check_shape(op: str, numbers: Mapping[str, float]) -> None:
    """Raise InvalidRequest where the numbers of a row contradict each other."""
    for less, more in (("kv_heads", "heads"), ("topk", "num_experts"), ("ep", "num_experts"), ("tp", "inter")):
        if less in numbers and more in numbers and numbers[less] > numbers[more]:
            wanted = f"at most {more} = {numbers[more]:.0f}"
            raise InvalidRequest("contradiction", where=f"{op}: {less}", got=numbers[less], wanted=wanted)
    if not 2 <= numbers.get("devices", 2) <= MAX_DEVICES:
        raise InvalidRequest("devices", where=op, got=numbers["devices"], wanted=f"2 to {MAX_DEVICES}")
