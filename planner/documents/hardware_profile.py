"""The shape of a hardware profile, and its conversion to a document.

The bounds are far outside what any device does; a number beyond them has another unit (GB for bytes, TFLOP/s for
FLOP/s, microseconds for seconds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from planner.choose.hardware import Hardware
from planner.choose.hardware.corrections import MAX_SECONDS, TimeCorrection
from planner.choose.hardware.curves import Curve, Curves
from planner.choose.hardware.efficiency import Efficiency
from planner.choose.hardware.interference import MAX_SHARE, Interference
from planner.documents.strict_model import Dtype, Id, Name, Size, StrictModel, Version2

Seconds = Annotated[float, Field(ge=0, le=1, description="seconds")]
Flops = Annotated[float, Field(ge=1e8, le=1e18, description="flop/s")]
Rate = Annotated[float, Field(ge=1e5, le=1e15, description="B/s")]
Share = Annotated[float, Field(gt=0, le=1)]
WorkKind = Literal["compute", "collective", "to_device", "from_device"]
Longer = Annotated[float, Field(ge=0, le=MAX_SHARE)]
InterferenceByLink = Annotated[dict[Id, dict[WorkKind, dict[WorkKind, Longer]]], Field(max_length=64)]
Point = Annotated[list[Annotated[float, Field(gt=0, le=1e20)]], Field(min_length=2, max_length=2)]
Points = Annotated[list[Point], Field(min_length=1, max_length=256, fail_fast=True)]


class SwitchDocument(StrictModel):
    """Reduction in the switch: the speed-up, the fill time of its pipeline, and the fewest devices it is used for."""

    factor: Annotated[float, Field(ge=1, le=100)]
    fill_s: Seconds
    devices: Size


class LinkDocument(StrictModel):
    """A link. `bandwidth` is in B/s per device and direction.

    `latency_s` per collective, `step_s` per step of a ring or chain, `level_s` per level of a tree (null: chains),
    `fill_s` to fill a pipeline.
    """

    latency_s: Seconds
    bandwidth: Rate
    step_s: Seconds = 0.0
    level_s: Seconds | None = None
    fill_s: Seconds = 0.0
    switch: SwitchDocument | None = None


class TierDocument(StrictModel):
    """Up to `devices` devices (null: any number) that are joined by a link."""

    link: Id
    devices: Annotated[int, Field(ge=1)] | None


class CurvesDocument(StrictModel):
    """Measured times of an op: points [work, seconds] by FLOPs, and by bytes read and written; the longer counts."""

    flops: Points | None = None
    bytes: Points | None = None


class CorrectionDocument(StrictModel):
    """Seconds of kernels or steps are `offset_s` + `scale` * predicted; `low`, `high`: measured over these."""

    scale: Annotated[float, Field(gt=0, le=1e4)]
    offset_s: Annotated[float, Field(ge=0, le=MAX_SECONDS, description="seconds")]
    low: Annotated[float, Field(gt=0, le=1e4)]
    high: Annotated[float, Field(gt=0, le=1e4)]


Corrections = Annotated[dict[Id, CorrectionDocument], Field(max_length=64)]


class ProfileDocument(StrictModel):
    """A hardware profile: rates per device, and links and tiers of the network, innermost first.

    `curves`: measured times of ops by name, or `name.dtype`, instead of the roofline. `efficiency`: points [FLOPs,
    share of peak] of classes of ops, instead of `compute_efficiency`. `op_times`: the measured device whose fitted
    classes of kernels price ops, or `transferred`: those of the measured devices, by the datasheet's peaks;
    `op_corrections`: by class, what `hardware fit` fitted to times of kernels measured on one's own machine;
    `step_corrections`: by software, the same of training steps, for `predict steps`. `overlap`: the share of the
    possible gain from running collectives during ops that counts. `interference`: by link and kind of work (compute,
    collective, to_device, from_device), the share by which each other kind that runs at the same time makes it take
    longer. `power_w`: rated power of a device. `sources`: the origin of a number.
    """

    format: Literal["shardplan.hardware"]
    version: Version2
    name: Id
    about: Name = ""
    peak_flops: Annotated[dict[Dtype, Flops], Field(min_length=1)]
    compute_efficiency: Share
    memory_bandwidth: Rate
    memory_efficiency: Share
    memory_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 50)]
    launch_s: Seconds
    power_w: Annotated[float, Field(gt=0, le=1e5, description="W")] | None = None
    links: Annotated[dict[Id, LinkDocument], Field(min_length=1, max_length=64)]
    tiers: Annotated[list[TierDocument], Field(min_length=1, max_length=16)]
    curves: Annotated[dict[Id, CurvesDocument], Field(max_length=4096)] = Field(default={})
    efficiency: dict[Literal["product", "attention", "attention_backward"], Points] = Field(default={})
    op_times: Id | None = None
    op_corrections: Corrections = Field(default={})
    step_corrections: Corrections = Field(default={})
    overlap: Annotated[float, Field(ge=0, le=1)] = 0.0
    interference: InterferenceByLink = Field(default={})
    sources: dict[Name, Annotated[str, Field(max_length=4096)]] = Field(default={})


def dump_network(hardware: Hardware) -> dict[str, Any]:
    """Return links, tiers, curves, efficiency, fitted classes, overlap and interference of a profile."""
    return {
        "links": {name: asdict(link) for name, link in hardware.links.items()},
        "tiers": [asdict(tier) for tier in hardware.tiers],
        **({"curves": dump_curves(hardware.curves)} if hardware.curves else {}),
        **({"efficiency": dump_efficiency(hardware.efficiency)} if hardware.efficiency else {}),
        **({"op_times": hardware.op_times} if hardware.op_times else {}),
        **({"op_corrections": dump_corrections(hardware.op_corrections)} if hardware.op_corrections else {}),
        **({"overlap": hardware.overlap} if hardware.overlap else {}),
        **({"interference": dump_interference(hardware.interference)} if hardware.interference else {}),
    }


def dump_curves(curves: Mapping[str, Curves]) -> dict[str, Any]:
    """Return curves by op."""
    return {name: {"flops": _dump_points(own.flops), "bytes": _dump_points(own.bytes)} for name, own in curves.items()}


def dump_efficiency(efficiency: Mapping[str, Efficiency]) -> dict[str, list[list[float]]]:
    """Return the points of every class of ops."""
    return {
        key: [list(point) for point in zip(curve.flops, curve.share, strict=True)] for key, curve in efficiency.items()
    }


def dump_corrections(corrections: Mapping[str, TimeCorrection]) -> dict[str, Any]:
    """Return the corrections of every class of kernels."""
    return {key: asdict(each) for key, each in corrections.items()}


def dump_interference(interference: Mapping[str, Interference]) -> dict[str, Any]:
    """Return the shares of every link."""
    return {link: {kind: dict(own) for kind, own in each.shares.items()} for link, each in interference.items()}


def _dump_points(curve: Curve | None) -> list[list[float]] | None:
    return None if curve is None else [list(point) for point in zip(curve.work, curve.seconds, strict=True)]
