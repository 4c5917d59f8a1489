"""A profile of the device at hand: what its ops were measured to take, and the links of another profile.

Every op that is probed gets a curve; rates and launch, for the ops that are not, are the best that was seen. A number
that nothing measures stays as the profile it begins with has it, and says so.
"""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from planner.choose.cost import CostModel, op_variant
from planner.choose.hardware import parse_hardware
from planner.choose.hardware.curves import Curve, Curves
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
    """The document of a profile `name` that begins with that of another. Raises RunFailed without the backend."""
    xp, hardware = array_module(backend), parse_hardware(base)
    found = [each for dtype in _PROBED[backend] for each in measure_ops(xp, dtype, probes, clock=clock)]
    work = list(_count_work(found, CostModel(SINGLE_DEVICE, hardware)))
    curves = {key: _fit_curves(points) for key, points in _points_by_op(found, work).items()}
    flops, moved, launch = _peak_rates(found, work)
    version = f"{backend} {_backend_version(backend)}"
    how = f"measured by hardware calibrate: {version}, {platform.machine()}, {len(found)} timings"
    kept = f"achievable as {base['name']}, not measured"
    sources = dict.fromkeys(("compute_efficiency", "memory_efficiency", "memory_bytes", "launch_s", "curves"), how)
    sources |= {"memory_bandwidth": how if moved else kept, "tiers": kept}
    sources |= {"peak_flops": f"{', '.join(flops) or 'none'}: {how}; others: {kept}"}
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
        "sources": sources | {f"links.{link}": kept for link in base["links"]},
    }


def select_probes(ops: Sequence[str]) -> list[Probe]:
    """The probes of some ops; of all where none is named. Raises InvalidRequest for an op that has none."""
    known = list(dict.fromkeys(probe.op for probe in PROBES))
    if unknown := [op for op in ops if op not in known]:
        raise InvalidRequest("no such op to measure", got=unknown[0], wanted=f"one of {', '.join(known)}")
    return [probe for probe in PROBES if not ops or probe.op in ops]


def _count_work(found: Sequence[Measurement], model: CostModel) -> Iterator[tuple[float, int]]:
    """Flops and bytes of every op measured, as the cost model counts them."""
    for each in found:
        yield model.op_work(each.op, each.operands, ((),) * len(each.op.rule.loops))


def _points_by_op(found: Sequence[Measurement], work: Sequence[tuple[float, int]]) -> dict[str, dict[str, Points]]:
    points: dict[str, dict[str, Points]] = defaultdict(lambda: defaultdict(list))
    for each, (flops, moved) in zip(found, work, strict=True):
        key = f"{op_variant(each.op)}.{each.op.results[0].dtype}"
        points[key][each.by].append((flops if each.by == "flops" else float(moved), each.seconds))
    return points


def _fit_curves(points: Mapping[str, Points]) -> Curves:
    return Curves(**{by: Curve.of(listed) for by, listed in points.items()})


def _peak_rates(
    found: Sequence[Measurement], work: Sequence[tuple[float, int]]
) -> tuple[dict[str, float], float, float]:
    """The highest flop rate by dtype, the byte rate of the largest op that goes with bytes (0: none), the shortest
    time."""
    flops: dict[str, float] = {}
    largest = (0, 0.0)
    for each, (done, moved) in zip(found, work, strict=True):
        dtype = each.op.results[0].dtype
        if each.by == "flops":
            flops[dtype] = max(flops.get(dtype, 0.0), done / each.seconds)
        else:
            largest = max(largest, (moved, moved / each.seconds))
    return flops, largest[1], min(each.seconds for each in found)


def _backend_version(backend: str) -> str:
    return version("numpy") if backend == "numpy" else str(array_module(backend).__version__)
