"""The parts of a plan document that say what was asked, proven, priced and run."""

from __future__ import annotations

from operator import lt
from typing import Literal, Self

from pydantic import Field, model_validator

from planner.documents.hardware_profile import CurvesDocument, LinkDocument, Points, TierDocument
from planner.documents.strict_model import Id, Name, Size, StrictModel


class HardwareDocument(StrictModel):
    """The numbers of the hardware profile that the plan was priced with, a device; `axis_links`: the outermost link
    of every mesh axis.
    """

    name: Name
    peak_flops: dict[Name, float]
    compute_efficiency: float
    memory_bandwidth: float
    memory_efficiency: float
    memory_bytes: Size
    launch_s: float
    collective_launch_s: float | None = None
    axis_links: list[LinkDocument]
    links: dict[Id, LinkDocument] | None = None
    tiers: list[TierDocument] | None = None
    curves: dict[Id, CurvesDocument] = Field(default={})
    efficiency: dict[Name, Points] = Field(default={})
    overlap: float = 0.0


class RequestDocument(StrictModel):
    """What was asked for."""

    objective: Literal["time", "bytes", "memory"]
    memory_limit_bytes: Size
    gap: float
    time_limit_s: float | None
    deterministic: bool
    seed: int
    recompute: Literal["none", "auto"] = "none"


class FoldingDocument(StrictModel):
    """Equal layers planned alike at first; no plan is faster than that one by a larger share than `loss_bound`."""

    layers: list[Size]
    groups: Size
    variables: Size
    total_variables: Size
    loss_bound: float | None
    unfolded: bool


class SolverDocument(StrictModel):
    """What is proven: no plan is faster than `bound_s`, or none fits a limit below `least_limit_bound_bytes`.

    Where the least bytes are asked for, `objective_bytes` are received in all collectives (each at its largest shard),
    or held at the peak, and none receives or holds less than `bound_bytes`: `status` and `gap` then speak of bytes.
    `objective_s` stays the time of a step; `bound_s` is 0 for bytes received, and for memory that of plans which hold
    no more. `versions`: of what has planned, part of the plan's id.
    """

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    objective_s: float | None
    bound_s: float
    gap: float | None
    wall_s: float | None
    reason: Name
    reproducible: bool
    memory_price_s_per_gib: float
    least_limit_bytes: Size | None
    least_limit_bound_bytes: Size | None
    folding: FoldingDocument | None = None
    objective_bytes: Size | None = None
    bound_bytes: Size | None = None
    seed: int
    versions: dict[Name, int | Name]


class CollectiveDocument(StrictModel):
    """One collective of the program."""

    collective: Name
    axes: list[Id]
    value: Id
    time_s: float
    bytes: Size


class CollectivesDocument(StrictModel):
    """All collectives of one kind over the same mesh axes."""

    collective: Name
    axes: list[Id]
    count: Size
    time_s: float
    bytes: Size


class OverlapDocument(StrictModel):
    """A step with collectives beside ops, as far as the hardware's `overlap` goes; the longer of compute and
    communication, which no order beats; the length of the schedule that fits the limit, and its peak.
    """

    step_s: float
    lower_bound_s: float
    scheduled_s: float
    peak_bytes: Size


class CostDocument(StrictModel):
    """Time of a step and bytes received, by collective and by mesh axes; `recompute_s`: the part of the compute time
    that ops take which are done again. `step_s` is the serial sum, `overlap` what collectives beside ops make of it.
    `mfu` is the share of the devices' peak rate that the model's own `model_flops` are in a step (`planner.judge.mfu`).
    """

    step_s: float
    compute_s: float
    communication_s: float
    recompute_s: float = 0.0
    model_flops: float | None = None
    mfu: float | None = None
    overlap: OverlapDocument | None = None
    collective_bytes: Size
    by_collective: list[CollectivesDocument]
    by_axis: dict[Name, Size]
    top_collectives: list[CollectiveDocument]


class KindDocument(StrictModel):
    """Bytes of one kind: `bytes[i]` from instruction `moments[i]` (the first is 0) until `moments[i + 1]`. The number
    of instructions stands for the end of the program, when its outputs are held.
    """

    kind: Name
    moments: list[Size]
    bytes: list[Size]

    @model_validator(mode="after")
    def _check(self) -> Self:
        rising = self.moments[:1] == [0] and all(map(lt, self.moments, self.moments[1:]))
        if not rising or len(self.moments) != len(self.bytes):
            raise ValueError("moments that rise from 0, and bytes for each")
        return self


class MemoryDocument(StrictModel):
    """Peak memory, the value that is made then, its parts, and the bytes live over time, kind by kind: those of the
    device that reaches the peak first. At every moment the kinds add up to what it holds.
    """

    peak_bytes: Size
    at: Id
    by_kind: dict[Name, Size]
    timeline: list[KindDocument]


class FiguresDocument(StrictModel):
    """The numbers of a named layout."""

    name: Name
    step_s: float
    collective_bytes: Size
    peak_bytes: Size
    fits: bool


class ShardDocument(StrictModel):
    """What a device read: its elements row by row (null: one that is no number), or null where they are too many."""

    device: Size | None = None
    value: Name
    shape: list[int]
    elements: list[float | None] | None


class DifferenceDocument(StrictModel):
    """Where a run begins to differ from the unsharded graph; a number that is not finite is null."""

    what: Literal["value", "received_bytes", "peak_bytes"]
    instruction: Size
    operation: Name
    value: Name
    device: Size
    index: list[int]
    got: float | None
    wanted: float | None
    inputs: list[ShardDocument]


class VerdictDocument(StrictModel):
    """The plan run against the unsharded graph; an error that is no number is null."""

    verdict: Literal["equal", "different", "structural"]
    max_relative_error: float | None
    counted_bytes: Size | None
    predicted_bytes: Size
    counted_peak_bytes: Size | None
    predicted_peak_bytes: Size
    devices: Size
    backend: Name
    precision: Name
    shrunk: bool
    seed: int
    not_run: list[Name]
    difference: DifferenceDocument | None = None


class NothingDocument(StrictModel):
    """What an infeasible plan costs and holds."""
