"""Datasheet peaks that a class of kernels runs against, from a hardware profile."""

from __future__ import annotations

from planner.choose.hardware import Hardware
from planner.choose.hardware.op_classes import OP_CLASSES
from planner.choose.hardware.op_times import Rates

FORMATS: dict[str, tuple[str, float]] = {
    "f32": ("f32", 4),
    "f16": ("f16", 2),
    "bf16": ("bf16", 2),
    "fp8": ("f8e4m3", 1),
    "fp8_block": ("f8e4m3", 1),
    "fp8_static": ("f8e4m3", 1),
}
"""Element types of rows: the profile's element type, and bytes."""
SENT_BY = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "deepep_dispatch", "deepep_combine")
"""Classes whose bytes go over the innermost link, not through memory."""


def find_itemsize(dtype: str) -> float:
    """Return the bytes of an element; 1 for the word that stands for a library's element types."""
    return FORMATS.get(dtype, ("", 1))[1]


def find_rates(hardware: Hardware, key: str) -> Rates:
    """Return the peaks for a class and element type, `class.dtype`.

    Kernels that memory bounds compute in f32, and so do those of an element type that the device lacks.
    """
    name, dtype = key.split(".")[:2]
    if name in SENT_BY:
        link = hardware.links[hardware.tiers[0].link]
        return Rates(float("inf"), link.peak_bandwidth)
    word = "f32" if OP_CLASSES[name].is_streaming else FORMATS[dtype][0]
    return Rates(hardware.peak_flops.get(word, hardware.peak_flops["f32"]), hardware.memory_bandwidth)
