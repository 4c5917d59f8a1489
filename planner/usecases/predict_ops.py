"""Predicts the times of single kernels from rows that describe them.

The fitted class of the device is used where there is one; else those of the devices that were measured
(`planner.choose.hardware.op_transfer`), with a wider interval. Collectives beyond one
node are timed by the network of the profile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from planner.choose.hardware import Hardware, load_profile
from planner.choose.hardware.corrections import find_correction
from planner.choose.hardware.intervals import NETWORK_INTERVAL, OUT_OF_RANGE, UNMEASURED_OP
from planner.choose.hardware.network import collective_s
from planner.choose.hardware.op_rates import SENT_BY
from planner.choose.hardware.op_times import LAUNCH_S, list_fitted, load_fits
from planner.choose.hardware.op_transfer import find_kernels
from planner.choose.op_prices import PRICED_CLASSES, kernel_s
from planner.errors import InvalidRequest
from planner.ir.collectives import COLLECTIVES, Kind
from planner.ir.mesh import Mesh
from planner.usecases.predict_rows import BUILT_IN, KernelRow, RowProfiles, read_row

Answer = dict[str, Any]


def predict_ops(rows: Sequence[object], profiles: RowProfiles = BUILT_IN) -> list[Answer]:
    """Return one answer for each row, in order: its time and interval in seconds, or `error` with the reason."""
    answers: list[Answer] = [{} for _ in rows]
    groups: dict[tuple[Hardware, str, str], list[tuple[int, KernelRow]]] = defaultdict(list)
    for number, row in enumerate(rows):
        try:
            read = read_row(row, profiles)
            groups[read.hardware, read.op, read.variant].append((number, read))
        except InvalidRequest as error:
            answers[number] = {"error": str(error)}
    for members in groups.values():
        try:
            predicted = predict_group([read for _, read in members])
        except InvalidRequest as error:
            predicted = [{"error": str(error)}] * len(members)
        for (number, _), answer in zip(members, predicted, strict=True):
            answers[number] = answer
    return answers


def predict_group(rows: Sequence[KernelRow]) -> list[Answer]:
    """Return the answers for rows of one device, class and variant. Raises InvalidRequest without measurements."""
    hardware, op, variant, _ = rows[0]
    if op in SENT_BY and not op.startswith("deepep"):
        fitted_here = f"{op}.{variant}" in _list_own_fits(hardware)
        inside = [row.numbers["devices"] <= 8 and fitted_here for row in rows]
        if not all(inside):
            fitted = iter(_predict_fitted([row for row, here in zip(rows, inside, strict=True) if here]))
            return [next(fitted) if here else _predict_network(row) for row, here in zip(rows, inside, strict=True)]
    return _predict_fitted(rows)


def _list_own_fits(hardware: Hardware) -> Collection[str]:
    """Return the fitted collectives of a profile; none where its links were measured anew."""
    if hardware.op_times not in list_fitted() or load_profile(hardware.op_times).links != hardware.links:
        return ()
    return load_fits(hardware.op_times)


def _predict_fitted(rows: Sequence[KernelRow]) -> list[Answer]:
    if not rows:
        return []
    hardware, op, variant, first = rows[0]
    columns = {name: np.array([row.numbers[name] for row in rows]) for name in first}
    name, corrections = f"{op}.{variant}", hardware.op_corrections
    if hardware.op_times is None and op in PRICED_CLASSES:
        own = find_correction(corrections, name, UNMEASURED_OP)
        times = own.apply(kernel_s(hardware, op, variant, columns=columns))
        return [_answer_judged(time, (own.low, own.high), "roofline_s") for time in times.tolist()]
    found = find_kernels(hardware, op, variant)
    own = find_correction(corrections, name, found.interval)
    seconds, is_covered = own.apply(found.seconds(columns)), found.covers(columns)
    spread = np.where(is_covered, 1.0, OUT_OF_RANGE)
    low, high = seconds * own.low / spread, seconds * own.high * spread
    flops, moved = found.kernel.count_work(columns, found.itemsize)
    parts = flops / found.rates.flops, moved / found.rates.bandwidth, moved
    return [
        {
            "time_s": float(time),
            "low_s": float(min(least, time)),
            "high_s": float(max(most, time)),
            **({"peak_memory_bytes": int(size)} if found.kernel.is_exact else {}),
            "parts": {"launch_s": LAUNCH_S, "compute_s": float(compute), "memory_s": float(moved)},
            **({} if found.is_own else {"efficiency_of": found.device}),
            **({} if found.variant == variant else {"measured_as": found.variant}),
            **({} if here else {"out_of_range": True}),
        }
        for time, least, most, here, compute, moved, size in zip(seconds, low, high, is_covered, *parts, strict=True)
    ]


def _predict_network(row: KernelRow) -> Answer:
    """Return the answer for a collective by the links of the profile."""
    count, size = row.numbers["devices"], row.numbers["bytes"]
    spans = row.hardware.tier_spans(Mesh.parse(f"devices={count:.0f}"))[0]
    kind = Kind(row.op)
    time = collective_s(kind, spans, size / count if COLLECTIVES[kind].gathers else size)
    return _answer_judged(time, NETWORK_INTERVAL, "network_s")


def _answer_judged(time: float, interval: tuple[float, float], part: str) -> Answer:
    """Return the answer for a time with one part, whose interval is judged."""
    low, high = interval
    return {"time_s": time, "low_s": time * min(low, 1.0), "high_s": time * max(high, 1.0), "parts": {part: time}}
