"""The options of the planner's questions, each declared once: its name, type, default, bounds and help.

The command line makes its options of these models (`api.cli.parameters`), HTTP extends them to request bodies and
query parameters (`api.http.requests`), so that an option has one name, one default and one meaning everywhere.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field

from api.pipeline_options import PipelineOptions
from planner.documents.strict_model import Dtype, StrictModel
from planner.frontends.zoo import OPTIMIZERS, Precision
from planner.frontends.zoo.models import MAX_LAYERS, MAX_SIZE
from planner.frontends.zoo.update import MasterMode
from planner.judge.standard_layouts import LayoutName
from planner.planning.plan_types import ObjectiveName, RecomputeMode, Request
from planner.rewrite.accumulate import MAX_MICROBATCHES

MAX_SEED = (1 << 31) - 1
MAX_TIME_S = 86_400.0
DEFAULTS = Request()
"""The options of a plan have the defaults of the Python interface."""

Gap = Annotated[float, Field(ge=0, lt=1, description="Stop when the proven gap is this small.")]
MemoryLimit = Annotated[
    int | None, Field(ge=1, le=1 << 62, description="Limit of peak memory per device; else the hardware's memory.")
]
Recompute = Annotated[
    RecomputeMode, Field(description="auto: forward values may be computed again for the backward pass.")
]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED, description="Seed of the solver.")]
TimeLimit = Annotated[float | None, Field(gt=0, le=MAX_TIME_S, description="Seconds of solving.")]
Layout = Annotated[
    LayoutName | None,
    Field(description="A standard layout that the plan keeps to; what it leaves open is planned."),
]
Overlap = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="The share of what running collectives beside ops gains that counts in the step; else that of the "
        "hardware profile. 0: the sum of all instructions.",
    ),
]
BaseLatency = Annotated[
    float | None, Field(ge=0, le=1, description="Seconds of any collective between nodes; else those of the hardware.")
]
PlanTimeLimit = Annotated[float, Field(gt=0, le=MAX_TIME_S, description="Seconds of planning per mesh.")]
SweepTimeLimit = Annotated[
    float | None,
    Field(gt=0, le=MAX_TIME_S, description="Seconds of the whole sweep; the answer is what is known by then."),
]


class SolverOptions(StrictModel):
    """How long the solver searches, and from which seed."""

    gap: Gap = DEFAULTS.gap
    time_limit_s: TimeLimit = DEFAULTS.time_limit_s
    deterministic: Annotated[bool, Field(description="Same input, same bytes.")] = DEFAULTS.deterministic
    seed: Seed = DEFAULTS.seed


class ProblemOptions(SolverOptions):
    """How a problem is solved on its own."""

    gap: Gap = 0.0
    processes: Annotated[
        int,
        Field(ge=1, description="With 2, a second process tightens the bound of a large problem during the search."),
    ] = 2


class PlanOptions(SolverOptions):
    """How to plan."""

    memory_limit_bytes: MemoryLimit = DEFAULTS.memory_limit_bytes
    objective: Annotated[
        ObjectiveName,
        Field(description="What to minimise: the time of a step, bytes received, or peak memory."),
    ] = DEFAULTS.objective
    recompute: Recompute = DEFAULTS.recompute
    microbatches: Annotated[
        int,
        Field(ge=1, le=MAX_MICROBATCHES, description="Forward and backward passes of the graph before each update."),
    ] = DEFAULTS.microbatches
    global_batch: Annotated[
        int | None,
        Field(ge=1, le=MAX_SIZE, description="Sequences of an update: as many micro-batches of the graph's batch."),
    ] = DEFAULTS.global_batch
    layout: Layout = DEFAULTS.layout
    overlap: Overlap = DEFAULTS.overlap
    base_latency_s: BaseLatency = DEFAULTS.base_latency_s

    def to_request(self) -> Request:
        return Request(**self.model_dump())


class StagedPlanOptions(PlanOptions, PipelineOptions):
    """How to plan, in pipeline stages or without."""

    def to_request(self) -> Request:
        return Request(**self.model_dump(include=set(PlanOptions.model_fields)))


class RunOptions(StrictModel):
    """Which backend runs a program, and on which sizes."""

    backend: Annotated[
        Literal["numpy", "cupy", "mpi", "nccl"],
        Field(description="What runs it: logical devices in one process (numpy, cupy), or a process each (mpi, nccl)."),
    ] = "numpy"
    shrink: Annotated[
        Literal["auto", "none"], Field(description="auto: run the same program on smaller sizes; none: on full sizes.")
    ] = "auto"


class ValidationOptions(RunOptions):
    """How a plan is run and compared with the unsharded graph."""

    precision: Annotated[
        Literal["f64", "f32", "f16", "rounded"],
        Field(
            description="What floats are computed in; rounded: each in its own dtype, f16 and bf16 rounded after every "
            "op; f16 on a GPU only."
        ),
    ] = "f64"
    seed: Annotated[int, Field(ge=0, le=MAX_SEED, description="Seed of the inputs.")] = 0


class TransferOptions(StrictModel):
    """How state is moved between layouts."""

    objective: Annotated[
        Literal["time", "bytes"], Field(description="What to minimise: time, or bytes received in all.")
    ] = "time"
    verify: Annotated[bool, Field(description="Run it on every logical device.")] = True


class ReshardOptions(TransferOptions):
    """How one tensor is resharded."""

    dtype: Annotated[Dtype, Field(description="Element type.")] = "f32"
    memory_limit_bytes: Annotated[
        int | None, Field(ge=1, le=1 << 62, description="Memory per device for what a step reads and writes.")
    ] = None
    schedule: Annotated[bool, Field(description="List the rounds of every exchange.")] = False


class CapacityOptions(StrictModel):
    """Which devices are considered for a model, and how each candidate is planned."""

    devices: Annotated[
        str, Field(max_length=1024, description="Numbers of devices: 8,16,24, or 8..512, which doubles.")
    ]
    axes: Annotated[int, Field(ge=1, le=3, description="The most mesh axes, 1 to 3.")] = 2
    memory_limit_bytes: MemoryLimit = None
    recompute: Recompute = "none"
    gap: Annotated[
        float, Field(ge=0, lt=1, description="The share by which a skipped mesh may be better than the answer.")
    ] = 0.01
    seed: Seed = 0
    max_step_s: Annotated[float | None, Field(gt=0, description="The most seconds that a step may take.")] = None
    max_cost: Annotated[float | None, Field(gt=0, description="The most that a token, or a step, may cost.")] = None
    tokens: Annotated[
        float | None, Field(gt=0, le=1e21, description="Tokens of a whole run: also print its days, cost and energy.")
    ] = None
    global_batch: Annotated[
        int | None,
        Field(ge=1, le=MAX_SIZE, description="Sequences of an update: as many micro-batches of each batch."),
    ] = None
    layout: Layout = None
    overlap: Overlap = None
    base_latency_s: BaseLatency = None
    plan_time_limit_s: PlanTimeLimit = 60.0
    time_limit_s: SweepTimeLimit = None

    def to_request(self) -> Request:
        """Return how a candidate is planned."""
        own = self.model_dump(include={field.name for field in fields(Request)} - {"time_limit_s"})
        return Request(**own, time_limit_s=self.plan_time_limit_s)


class TrainingOptions(StrictModel):
    """How a training step updates its parameters, and whether its attention may run as a ring."""

    train: Annotated[
        str | None,
        Field(
            max_length=256,
            description=f"A training step with this optimizer: {', '.join(OPTIMIZERS)}; with hyperparameters as "
            "adamw:lr=3e-4,weight_decay=0.1.",
        ),
    ] = None
    clip_grad_norm: Annotated[
        float | None, Field(gt=0, description="Scale gradients down where their global norm exceeds this.")
    ] = None
    master: Annotated[
        MasterMode,
        Field(
            description="f32: parameters narrower than f32 have a copy in f32, which is updated; none: no copies; "
            "auto: what is usual for the optimizer."
        ),
    ] = "auto"
    ring_attention: Annotated[
        bool,
        Field(description="Keys and values may pass round the devices that split a sequence, while attention runs."),
    ] = False


class ModelSizes(TrainingOptions):
    """The sizes of a built-in model; omitted sizes are the published ones."""

    prefill: Annotated[
        bool, Field(description="Inference: all tokens at once, with the keys and values that decoding keeps.")
    ] = False
    decode: Annotated[
        bool, Field(description="Inference: one token a sequence, with a cache of keys and values of --seq tokens.")
    ] = False
    layers: Annotated[
        int | None, Field(ge=1, le=MAX_LAYERS, description="Number of layers; else the published one.")
    ] = None
    width: Annotated[int | None, Field(ge=1, le=MAX_SIZE, description="Width of a token.")] = None
    heads: Annotated[int | None, Field(ge=1, le=MAX_SIZE, description="Query heads.")] = None
    kv_heads: Annotated[
        int | None, Field(ge=1, le=MAX_SIZE, description="Key and value heads, shared by the query heads.")
    ] = None
    feed_forward: Annotated[
        int | None, Field(ge=1, le=MAX_SIZE, description="Hidden width of the feed-forward networks.")
    ] = None
    vocabulary: Annotated[int | None, Field(ge=1, le=MAX_SIZE, description="Size of the vocabulary.")] = None
    experts: Annotated[int | None, Field(ge=1, le=MAX_SIZE, description="Experts of a layer.")] = None
    capacity: Annotated[
        float,
        Field(gt=0, le=MAX_SIZE, description="Tokens that an expert may take, as a multiple of its even share."),
    ] = 1.0
    dtype: Annotated[
        Literal["bf16", "f16", "f32", "f64"], Field(description="Element type of parameters and activations.")
    ] = "bf16"
    precision: Annotated[
        Precision | None,
        Field(description="Parameters, gradients and states in f32, computing in bf16 or f16; in the place of dtype."),
    ] = None


class ModelSeries(ModelSizes):
    """A built-in model with one or several batches and lengths, as numbers with commas between."""

    batch: Annotated[
        str | None,
        Field(
            max_length=1024,
            description="Sequences per micro-batch of a named model, one or several: 32,64. Else 8, or with "
            "--global-batch all of it, a half, a quarter, ...",
        ),
    ] = None
    seq: Annotated[
        str | None,
        Field(max_length=1024, description="Tokens per sequence of a named model, one or several; else at most 2048."),
    ] = None


class ModelOptions(ModelSizes):
    """The sizes of a built-in model and of its batch."""

    batch: Annotated[int, Field(ge=1, le=MAX_SIZE, description="Sequences per batch.")] = 8
    seq: Annotated[
        int | None,
        Field(ge=1, le=MAX_SIZE, description="Tokens per sequence; else 2048, or fewer where the model takes fewer."),
    ] = None
