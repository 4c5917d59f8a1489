"""Model FLOPs utilization (MFU): the share of the devices' peak rate that the model itself uses.

    MFU = sum over element types of model FLOPs / peak FLOP/s of the type, / (step seconds * devices)

Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", JMLR 2023, appendix B. As there, model FLOPs are
those of the matrix products, convolutions and attention of one step of the unsharded graph, of all its micro-batches,
including the backward pass where the graph has one: ops that contract operands
(`planner.choose.hardware.efficiency.work_class`), where a multiplication and an addition are two FLOPs. Work that a
plan adds is not counted: recomputation, work that several devices repeat, padding of uneven shards. Elementwise ops,
softmax outside attention, norms, lookups and optimizer updates are not counted either. The flops of each op are those
of its row, exact for its sizes. PaLM estimates 6 N + 12 L H Q T per token instead, and counts causal attention in full,
of which a row that skips the masked half counts half.

The peak is the profile's `peak_flops` for the element type of the op's result, before any efficiency. A type without a
figure has the rate of f32, as in the cost model. The step is that of the plan, collectives included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from planner.choose.cost import CostModel, price_key
from planner.choose.hardware import DEFAULT_PROFILE, Hardware, load_profile
from planner.choose.hardware.efficiency import work_class
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh


def model_flops(graph: Graph) -> dict[str, float]:
    """Count the FLOPs of one step of the model, by the element type of the ops' results."""
    flops_by_dtype: defaultdict[str, float] = defaultdict(float)
    alone = CostModel(Mesh.parse("1"), load_profile(DEFAULT_PROFILE))  # FLOPs do not depend on the hardware
    known: dict[object, float] = {}  # equal ops of repeated layers are counted once
    for op in graph.ops:
        if op.recompute_of is None and work_class(op) is not None:
            operands = tuple(graph.types[value] for value in op.inputs)
            key = price_key(op), op.rule.pattern, op.rule.shapes, op.results, operands
            if key not in known:
                known[key] = alone.op_work(op, operands, ((),) * len(op.rule.loops)).flops
            flops_by_dtype[op.results[0].dtype] += known[key] * graph.count_runs(op)
    return dict(flops_by_dtype)


def utilisation(flops: Mapping[str, float], hardware: Hardware, devices: int, *, step_s: float) -> float:
    """Return the MFU of a step, or 0 for a step that takes no time."""
    peak_s = sum(count / hardware.peak_flops.get(dtype, hardware.peak_flops["f32"]) for dtype, count in flops.items())
    return peak_s / (devices * step_s) if step_s else 0.0
