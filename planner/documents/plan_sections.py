"""The parts of a plan document: request, certificate, costs, memory, verdict."""

from __future__ import annotations

from operator import lt
from typing import Literal, Self

from pydantic import Field, model_validator

from planner.documents.hardware_profile import (
    Corrections,
    CurvesDocument,
    InterferenceByLink,
    LinkDocument,
    Points,
    TierDocument,
)
from planner.documents.strict_model import Id, Name, Size, StrictModel
from planner.judge.standard_layouts import LayoutName


class HardwareDocument(StrictModel):
    """The profile that the plan was priced with, per device; `axis_links`: the outermost link of every mesh axis."""

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
    op_times: Id | None = None
    op_corrections: Corrections = Field(default={})
    overlap: float = 0.0
    interference: InterferenceByLink = Field(default={})


class RequestDocument(StrictModel):
    """What was requested."""

    objective: Literal["time", "bytes", "memory"]
    memory_limit_bytes: Size
    gap: float
    time_limit_s: float | None
    deterministic: bool
    seed: int
    recompute: Literal["none", "auto"] = "none"
    microbatches: Size = 1
    global_batch: Size | None = None
    layout: LayoutName | None = None
    overlap: float | None = None
    base_latency_s: float | None = None


class FoldingDocument(StrictModel):
    """Repeated layers that were first planned alike.

    `layers`: the number of layers in each stack; `groups` of decisions taken as one; `variables` left of
    `total_variables`. No plan is faster than the folded one by a larger share than `loss_bound`. `unfolded`: equal
    layers differ in the plan.
    """

    layers: list[Size]
    groups: Size
    variables: Size
    total_variables: Size
    loss_bound: float | None
    unfolded: bool


class SolverDocument(StrictModel):
    """The certificate: no plan is faster than `bound_s`; none fits a limit below `least_limit_bound_bytes`.

    Where bytes or memory are minimised, `objective_bytes` are received in all collectives (each at its largest shard),
    or held at the peak, and no plan receives or holds less than `bound_bytes`; `status` and `gap` then refer to bytes.
    `objective_s` stays the time of a step; `bound_s` is 0 for bytes received, and for memory a bound over plans that
    hold no more. `versions` are those of the planner, part of the plan's id.
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
    """The step with collectives running during ops.

    `step_s` counts the hardware's share of overlap, and no plan of the request takes less than `bound_s`;
    `lower_bound_s`, the longest of compute and the collectives of each link, holds for any schedule of this plan;
    `scheduled_s` and `peak_bytes` are those of a schedule that fits the limit.
    """

    step_s: float
    bound_s: float | None = None
    lower_bound_s: float
    scheduled_s: float
    peak_bytes: Size


class ClassIntervalDocument(StrictModel):
    """Seconds of the instructions that one class prices, and the ends of their interval."""

    name: Name
    time_s: float
    low_s: float
    high_s: float


class IntervalDocument(StrictModel):
    """How sure the predicted step is, `overlap.step_s` (`planner.judge.step_interval`).

    `out_of_range_s`: time of ops whose local shape is outside the measured ones; `unmeasured_s`: of ops that no
    measurement prices.
    """

    low_s: float
    high_s: float
    out_of_range_s: float
    unmeasured_s: float
    by_class: list[ClassIntervalDocument]


class CostDocument(StrictModel):
    """Time of a step and bytes received, by collective and by mesh axes.

    `step_s` is the sum without overlap, of all `microbatches` and the update. `update_s` is the part of it that runs
    once, and `recompute_s` the part of the compute time spent on ops that are computed again. `mfu` is the share of the
    devices' peak rate that the model's own `model_flops` use in a step (`planner.judge.mfu`).
    """

    step_s: float
    compute_s: float
    communication_s: float
    recompute_s: float = 0.0
    microbatches: Size = 1
    update_s: float | None = None
    model_flops: float | None = None
    mfu: float | None = None
    overlap: OverlapDocument | None = None
    interval: IntervalDocument | None = None
    collective_bytes: Size
    by_collective: list[CollectivesDocument]
    by_axis: dict[Name, Size]
    top_collectives: list[CollectiveDocument]


class KindDocument(StrictModel):
    """Memory of one kind: `bytes[i]` from instruction `moments[i]` (the first is 0) until `moments[i + 1]`.

    The number of instructions stands for the end of the program, when its outputs are held.
    """

    kind: Name
    moments: list[Size]
    bytes: list[Size]

    @model_validator(mode="after")
    def _check(self) -> Self:
        rising = self.moments[:1] == [0] and all(map(lt, self.moments, self.moments[1:]))
        if not rising or len(self.moments) != len(self.bytes):
            raise ValueError("increasing moments from 0, and bytes for each")
        return self


class MemoryDocument(StrictModel):
    """Memory of the device that reaches the peak first: the peak, the value computed then (`at`), its parts, and the
    timeline.

    At every moment, the kinds add up to what the device holds.
    """

    peak_bytes: Size
    at: Id
    by_kind: dict[Name, Size]
    timeline: list[KindDocument]


class FiguresDocument(StrictModel):
    """The figures of a standard layout."""

    name: Name
    step_s: float
    collective_bytes: Size
    peak_bytes: Size
    fits: bool


class ShardDocument(StrictModel):
    """What a device read: its elements row by row (null: not a number), or null where there are too many."""

    device: Size | None = None
    value: Name
    shape: list[int]
    elements: list[float | None] | None


class DifferenceDocument(StrictModel):
    """Where a run first differs from the unsharded graph; a number that is not finite is null."""

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
    """The result of running the plan against the unsharded graph; a relative error that is not finite is null."""

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
    """The cost and memory of an infeasible plan."""
