"""Model FLOPs utilisation (MFU): the share of the devices' peak rate that the model itself asks for.

    MFU = sum over element types of model FLOPs / peak FLOP/s of the type, / (step seconds * devices)

Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", JMLR 2023, appendix B. As there, model FLOPs are
those of the matrix products, convolutions and attention of one step of the unsharded graph, with the backward pass
where the graph has one: ops that contract operands (`planner.choose.hardware.efficiency.work_class`), a
multiplication and an addition counting two. What a plan adds does not count: recomputation, work that several devices
repeat, padding of uneven shards. Elementwise ops, softmax outside attention, norms, lookups and optimizer updates do
not count either. The flops of every op are its own row's, exact for its sizes: PaLM estimates 6 N + 12 L H Q T a
token instead, and counts all of a causal attention, of which a row that skips the masked half counts half.

The peak is the profile's `peak_flops` for the element type that the op makes, before any efficiency; a type without a
figure counts at the rate of f32, as in the cost model. The step is that of the plan, collectives included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from planner.choose.cost import CostModel
from planner.choose.hardware import DEFAULT_PROFILE, Hardware, load_profile
from planner.choose.hardware.efficiency import work_class
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh


def model_flops(graph: Graph) -> dict[str, float]:
    """FLOPs of one step of the model, by the element type of what the ops make."""
    found: defaultdict[str, float] = defaultdict(float)
    alone = CostModel(Mesh.parse("1"), load_profile(DEFAULT_PROFILE))  # flops depend on no hardware
    for op in graph.ops:
        if op.recompute_of is None and work_class(op) is not None:
            operands = tuple(graph.types[value] for value in op.inputs)
            flops, _ = alone.op_work(op, operands, ((),) * len(op.rule.loops))
            found[op.results[0].dtype] += flops
    return dict(found)


def utilisation(flops: Mapping[str, float], hardware: Hardware, devices: int, *, step_s: float) -> float:
    """The MFU of a step; 0 where it takes no time."""
    peak_s = sum(count / hardware.peak_flops.get(dtype, hardware.peak_flops["f32"]) for dtype, count in flops.items())
    return peak_s / (devices * step_s) if step_s else 0.0
