"""Measure a hardware profile on this machine.

Each probed op gets a curve of its measured times. Other ops are priced by the best rates and the shortest time that
were measured. Figures that are not measured, such as those of links, are copied from a given profile; `sources` says
which.
"""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from planner.choose.cost import CostModel
from planner.choose.hardware import parse_hardware
from planner.choose.hardware.curves import Curve, Curves
from planner.choose.op_prices import LocalWork, op_variant
from planner.documents.hardware_profile import dump_curves
from planner.errors import InvalidRequest
from planner.run.backend import array_module, device_memory
from planner.run.calibrate import PROBES, SINGLE_DEVICE, Clock, Measurement, Probe, measure_ops

Points = list[tuple[float, float]]
_PROBED = {"numpy": ("f32",), "cupy": ("f32", "f16")}


def calibrate_profile(
    base: Mapping[str, Any],
    name: str,
    backend: str = "numpy",
    *,
    probes: Sequence[Probe] = PROBES,
    clock: Clock = time.perf_counter,
) -> dict[str, Any]:
    """Return the document of a measured profile, based on the document of another one.

    Raises RunFailed where the backend is not available.
    """
    xp, hardware = array_module(backend), parse_hardware(base)
    measurements = [each for dtype in _PROBED[backend] for each in measure_ops(xp, dtype, probes, clock=clock)]
    work = list(_count_work(measurements, CostModel(SINGLE_DEVICE, hardware)))
    curves = {key: _fit_curves(points) for key, points in _points_by_op(measurements, work).items()}
    flops, moved, launch = _peak_rates(measurements, work)
    version = f"{backend} {_backend_version(backend)}"
    how = f"measured by hardware calibrate: {version}, {platform.machine()}, {len(measurements)} timings"
    copied = f"achievable as {base['name']}, not measured"
    sources = dict.fromkeys(("compute_efficiency", "memory_efficiency", "memory_bytes", "launch_s", "curves"), how)
    sources |= {"memory_bandwidth": how if moved else copied, "tiers": copied}
    sources |= {"peak_flops": f"{', '.join(flops) or 'none'}: {how}; others: {copied}"}
    return {
        **base,
        "name": name,
        "about": f"Calibrated on {platform.node()}; links of {base['name']}.",
        "peak_flops": {dtype: hardware.flops_rate(dtype) for dtype in hardware.peak_flops} | flops,
        "compute_efficiency": 1.0,
        "memory_bandwidth": moved or hardware.bytes_rate,
        "memory_efficiency": 1.0,
        "memory_bytes": device_memory(xp),
        "launch_s": launch,
        "curves": dump_curves(curves),
        "efficiency": {},
        "op_times": None,
        "op_corrections": {},
        "step_corrections": {},
        "sources": sources | {f"links.{link}": copied for link in base["links"]},
    }


def select_probes(ops: Sequence[str]) -> list[Probe]:
    """Return the probes of the named ops, or all probes. Raises InvalidRequest for an op without a probe."""
    known = list(dict.fromkeys(probe.op for probe in PROBES))
    if unknown := [op for op in ops if op not in known]:
        raise InvalidRequest("no such op to measure", got=unknown[0], wanted=f"one of {', '.join(known)}")
    return [probe for probe in PROBES if not ops or probe.op in ops]


def _count_work(measurements: Sequence[Measurement], model: CostModel) -> Iterator[LocalWork]:
    """Yield flops and bytes of each measured op, as the cost model counts them."""
    for each in measurements:
        yield model.op_work(each.op, each.operands, ((),) * len(each.op.rule.loops))


def _points_by_op(measurements: Sequence[Measurement], work: Sequence[LocalWork]) -> dict[str, dict[str, Points]]:
    points: dict[str, dict[str, Points]] = defaultdict(lambda: defaultdict(list))
    for each, (flops, moved, _) in zip(measurements, work, strict=True):
        key = f"{op_variant(each.op)}.{each.op.results[0].dtype}"
        points[key][each.by].append((flops if each.by == "flops" else float(moved), each.seconds))
    return points


def _fit_curves(points: Mapping[str, Points]) -> Curves:
    return Curves(**{by: Curve.of(listed) for by, listed in points.items()})


def _peak_rates(
    measurements: Sequence[Measurement], work: Sequence[LocalWork]
) -> tuple[dict[str, float], float, float]:
    """Return the highest flop rate by dtype, the byte rate of the largest memory-bound op (0: none), and the shortest
    time."""
    flops: dict[str, float] = {}
    largest = (0, 0.0)
    for each, (done, moved, _) in zip(measurements, work, strict=True):
        dtype = each.op.results[0].dtype
        if each.by == "flops":
            flops[dtype] = max(flops.get(dtype, 0.0), done / each.seconds)
        else:
            largest = max(largest, (moved, moved / each.seconds))
    return flops, largest[1], min(each.seconds for each in measurements)


def _backend_version(backend: str) -> str:
    return version("numpy") if backend == "numpy" else str(array_module(backend).__version__)
