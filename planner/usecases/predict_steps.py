"""Predicts seconds and memory of training steps from rows that describe model, device and layout.

    step = (m + (p - 1) / v) (micro + sends) + reduction + update + gather

There are m micro batches, and p pipeline stages in v parts each (Narayanan et al., 2021: the bubble of 1F1B). `micro`
is forward and backward of the stage with the most work, with embedding and head, priced as the planner prices any
program (`planner.usecases.steps.micro_batches`): one layer and two are priced, and the others are like the second.
`sends` are 2 v activations. `reduction` is that of the gradients over the devices that split the batch; it overlaps
with the last backward pass, two thirds of a micro batch. ZeRO divides the update and its states by the devices
that share them, and gathers the parameters after it (`gather`, Rajbhandari et al., 2020), beside which nothing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import load_profile
from planner.choose.hardware.network import exchange_s
from planner.errors import ShardplanError
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.all_pairs import AllPairsResharding
from planner.usecases.steps.micro_batches import OVERLAP, MicroBatch, Placement, price_layers
from planner.usecases.steps.rows import StepRow, read_step_row

Answer = dict[str, Any]
INTERVAL = (0.8, 2.0)
"""Least and largest published over predicted time that an interval holds; judged, not fitted."""
ASSUMED = 1.25
"""Factor by which an interval widens on both sides where a field is assumed; judged, not fitted."""
STATES = 12
"""Bytes of an element's f32 copy and two f32 moments (Rajbhandari et al., 2020)."""
HOST_S = 50e-6
"""Seconds in which the host issues an instruction; a micro batch takes no less than those of its instructions. The
best, and the largest, of five values (0 to 50 us) on every 12th row of vTrain's published steps
(VIA-Research/vTrain, data/ground_truth_single.csv, commit f8dda847, MIT; 2 to 8 A100): the median error of these rows
is 14 % with it. It decides where micro batches are small, and may stand for more than the host's work."""
ITEMSIZES = {"f32": 4, "f16": 2, "bf16": 2}
BACKWARD = 2 / 3


def predict_steps(rows: Sequence[object], like: str | None = None, *, host_s: float = HOST_S) -> list[Answer]:
    """Return one answer for each row, in order: seconds, interval, peak bytes, parts, or `error` with the reason.

    like    the profile of devices that have none
    host_s  seconds in which the host issues an instruction
    """
    return [_predict_row(row, like, host_s) for row in rows]


def rank_steps(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers with their line from 1, fastest first: those that fit, those that do not, then errors."""
    lines = [{"line": number, **answer} for number, answer in enumerate(answers, 1)]
    return sorted(lines, key=lambda each: ("error" in each, not each.get("fits"), each.get("step_s", 0.0)))


def _predict_row(row: object, like: str | None, host_s: float) -> Answer:
    try:
        return _predict_step(read_step_row(row, like), host_s)
    except ShardplanError as error:
        return {"error": str(error)}


def _predict_step(row: StepRow, host_s: float) -> Answer:
    first, further = price_layers(row.model, _place(row), row.device)
    micro = _sum_layers(first, further, row.model.layers)
    busy = max(micro.overlapped_s, host_s * micro.instructions)
    bubbles = (row.stages - 1) / row.virtual_stages
    sends = 2 * row.virtual_stages * _send_s(row) if row.stages > 1 else 0.0
    reduction, gather = _reduction_s(row, micro)
    exposed = reduction - OVERLAP * min(reduction, BACKWARD * busy)
    update = micro.update_s / (row.data // row.fsdp if row.zero in (1, 2) else 1)
    parts = {
        "compute_s": micro.compute_s * row.micro_batches,
        "collectives_s": (micro.overlapped_s - micro.compute_s) * row.micro_batches,
        "host_s": (busy - micro.overlapped_s) * row.micro_batches,
        "sends_s": sends * row.micro_batches,
        "bubble_s": bubbles * (busy + sends),
        "reduction_s": exposed,
        "update_s": update,
        "gather_s": gather,
    }
    step, peak = sum(parts.values()), _peak_bytes(row, first, further)
    spread = ASSUMED if row.assumed else 1.0
    return {
        "step_s": step,
        "low_s": step * INTERVAL[0] / spread,
        "high_s": step * INTERVAL[1] * spread,
        "peak_memory_bytes": peak,
        "fits": peak <= row.memory_bytes,
        "parts": parts,
        **({"assumed": list(row.assumed)} if row.assumed else {}),
    }


def _place(row: StepRow) -> Placement:
    reduced = "f32" if row.fsdp > 1 and row.dtype != "f32" else None
    return Placement(
        batch=row.micro_batch * row.fsdp,
        dtype=row.dtype,
        reduced=reduced,
        remat=row.remat,
        fused=row.dtype == "bf16",
        fsdp=row.fsdp,
        tp=row.tp,
        sequence=row.is_sequence_parallel and row.tp > 1,
    )


def _sum_layers(first: MicroBatch, further: MicroBatch, layers: int) -> MicroBatch:
    names = MicroBatch.__slots__
    return MicroBatch(**{name: getattr(first, name) + (layers - 1) * getattr(further, name) for name in names})


def _reduction_s(row: StepRow, micro: MicroBatch) -> tuple[float, float]:
    """Return the seconds in which gradients are reduced and updated parameters gathered, both once a step.

    Gradients that are reduced in each micro batch, and parameters that are gathered there, are not counted.
    """
    others = row.data // row.fsdp
    if others == 1:
        return 0.0, 0.0
    costs = CostModel(Mesh.parse(f"dp={others},inner={row.fsdp * row.tp}"), load_profile(row.device))
    count = -(-int(micro.elements) // others) * others
    terms, whole, split = Sharding(((),), (0,), Reduction.SUM), Sharding(((),)), Sharding(((0,),))
    gradients = TensorType((count,), "f16" if row.dtype == "f16" else "f32")
    if row.zero not in (1, 2):
        return _reshard_s(costs, gradients, source=terms, target=whole), 0.0
    gathered = _reshard_s(costs, TensorType((count,), row.dtype), source=split, target=whole)
    return _reshard_s(costs, gradients, source=terms, target=split), gathered


def _reshard_s(costs: CostModel, kind: TensorType, *, source: Sharding, target: Sharding) -> float:
    """Return the seconds from one sharding to another, at the least cost."""
    table = AllPairsResharding.of(kind, {Reduction.SUM}, costs)
    return float(table.time[table.index[source], table.index[target]]) * PICO


def _send_s(row: StepRow) -> float:
    """Return the seconds to send an activation to the next stage; each `tp` device sends a part."""
    device, inner = load_profile(row.device), row.data * row.tp
    spans = device.tier_spans(Mesh.parse(f"pp={row.stages},inner={inner}"))[0]
    link = next(link for link, count in reversed(spans) if count > 1)
    size = row.micro_batch * row.model.positions * row.model.width * ITEMSIZES[row.dtype] / row.tp
    return exchange_s(link, 1, size)


def _peak_bytes(row: StepRow, first: MicroBatch, further: MicroBatch) -> int:
    """Return the peak bytes of the first stage, which holds activations of as many micro batches as there are stages.

    What a layer adds to the peak of a micro batch is its parameters and gradients, and the activations that it keeps.
    """
    item = 4 if row.fsdp > 1 else ITEMSIZES[row.dtype]
    stored = 2 * item
    held, layers = min(row.stages, row.micro_batches), row.model.layers
    activations = max(0.0, further.peak_bytes - stored * further.elements)
    elements = first.elements + (layers - 1) * further.elements
    shared = row.data // row.fsdp if row.zero in (1, 2) else 1
    states = STATES - (4 if row.fsdp > 1 else 0) if row.dtype != "f32" else 8
    main_gradients = 4 - item if row.dtype == "bf16" and row.fsdp == 1 else 0
    peak = first.peak_bytes + (layers - 1) * further.peak_bytes + (held - 1) * layers * activations
    return int(peak + elements * (states / shared + main_gradients))
