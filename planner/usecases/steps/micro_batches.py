"""Prices one micro batch of a pipeline stage in a stated layout, as the planner prices any program.

Its collectives overlap with ops (`planner.judge.overlap_schedule`), less what the overlap slows the ops down. `update`
is Adam on what a device stores. Full recomputation adds one more forward pass of all layers, each before the layer's
backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import Hardware
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo.models import Model
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.judge.overlap import assign_streams
from planner.judge.overlap_schedule import simulate_schedule
from planner.usecases.steps.graphs import micro_batch, optimizer, recomputed, stored
from planner.usecases.steps.layouts import Layout

AHEAD = 32
"""Parameters are gathered this many ops ahead: about a layer, as FSDP prefetches."""
OVERLAP = 1 - 0.189
"""Ops beside which a collective runs take 18.9 % longer on average: Lee et al., Characterizing compute-communication
overlap in GPU-accelerated distributed deep learning, 2025 (arXiv:2507.03114), on A100 and H100 among others."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Figures of a device: seconds of ops, of collectives, of both as they overlap, of the update; peak bytes without
    optimizer states."""

    compute_s: float
    communication_s: float
    overlapped_s: float
    update_s: float
    peak_bytes: float


@dataclass(frozen=True, slots=True)
class Placement:
    """How a micro batch of `batch` sequences is computed.

    reduced  dtype in which gradients are reduced; None: parameters are stored in the dtype of compute
    fused    whether attention is one op
    """

    batch: int
    dtype: str
    reduced: str | None
    remat: str
    fused: bool
    fsdp: int
    tp: int
    sequence: bool


def price_micro_batch(model: Model, placed: Placement, device: Hardware) -> MicroBatch:
    """Return the figures of a micro batch of all layers of a model."""
    mesh = Mesh.parse(f"fsdp={placed.fsdp},tp={placed.tp}")
    costs = CostModel(mesh, device)
    dtype = placed.dtype
    document = recomputed(micro_batch(model, placed.batch, model.positions, dtype, placed.fused), placed.remat)
    if placed.reduced:
        document = stored(document, "f32", placed.reduced)
    axes = ((0,) if placed.fsdp > 1 else ()), ((1,) if placed.tp > 1 else ())
    layout = Layout(_graph(document, mesh), costs, *axes, placed.sequence)
    analysis = Analysis(layout.program, costs)
    length = simulate_schedule(
        layout.program, analysis.times_ps, assign_streams(layout.program, costs), ahead=AHEAD
    ).length_ps
    kept = [entry for entry in document["inputs"] if entry["kind"] == "parameter"]
    return MicroBatch(
        compute_s=analysis.compute_ps * PICO,
        communication_s=(analysis.step_ps - analysis.compute_ps) * PICO,
        overlapped_s=(analysis.step_ps - OVERLAP * (analysis.step_ps - length)) * PICO,
        update_s=_update_s(layout, _graph(optimizer(kept, "f32" if placed.reduced else dtype), mesh)),
        peak_bytes=analysis.peak_bytes,
    )


def _graph(document: dict[str, Any], mesh: Mesh) -> Graph:
    return load_graph(GraphDocument.model_validate(document), mesh)


def _update_s(placed: Layout, graph: Graph) -> float:
    """Return the seconds of Adam on a device's shards; states and gradients are sharded as their parameters."""
    total = 0
    shardings = dict(placed.inputs)
    for op in graph.ops:
        split = next((shardings[v.split(".grad")[0]] for v in op.inputs if v.split(".grad")[0] in shardings), None)
        dims = zip(op.rule.results[0], split.split_axes, strict=True) if split else ()
        loops = {dim.loops[0]: axes for dim, axes in dims if dim.loops}
        option = tuple(loops.get(loop.name, ()) for loop in op.rule.loops)
        total += placed.model.op_ps(op, tuple(graph.types[v] for v in op.inputs), option)
        shardings |= dict.fromkeys(op.values, split) if split else {}
    return total * PICO
