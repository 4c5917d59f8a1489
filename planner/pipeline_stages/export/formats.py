"""The formats that the stages of a pipeline can be exported to; a format's module is imported when it is used."""

from __future__ import annotations

import json
from collections.abc import Callable

from planner.errors import InvalidRequest
from planner.export.formats import ExportFormat
from planner.export.sharding_documents import dtensor_document, partition_spec_document
from planner.ir.program import Program
from planner.pipeline_stages.export.stage_plan import StagePlan

STAGE_FORMATS = {
    "torch": ExportFormat(
        "planner.pipeline_stages.export.torch_stages:print_torch_stages", "torch", "text/x-python", True
    ),
    "shard-map": ExportFormat(
        "planner.pipeline_stages.export.shard_map_stages:print_shard_map_stages", "jax", "text/x-python", True
    ),
    "dtensor": ExportFormat(
        "planner.pipeline_stages.export.formats:print_dtensor_stages", "torch", "application/json", True
    ),
    "partition-spec": ExportFormat(
        "planner.pipeline_stages.export.formats:print_partition_spec_stages", "jax", "application/json", True
    ),
}


def export_stages(plan: StagePlan, name: str) -> str:
    """Return the stages as text.

    Raises InvalidRequest for a format that takes no stages or whose packages are missing, and InvalidSharding for what
    the format cannot express.
    """
    if name not in STAGE_FORMATS:
        what = "format for pipeline stages"
        raise InvalidRequest(what, got=name, wanted=f"one of {', '.join(STAGE_FORMATS)}")
    return STAGE_FORMATS[name].write(name, plan)


def print_dtensor_stages(plan: StagePlan) -> str:
    """Return the JSON text with the split points, the order of tasks, and each stage's DTensor placements."""
    return _print_layouts(plan, dtensor_document)


def print_partition_spec_stages(plan: StagePlan) -> str:
    """Return the JSON text with the split points, the order of tasks, and each stage's PartitionSpec entries."""
    return _print_layouts(plan, partition_spec_document)


def _print_layouts(plan: StagePlan, write: Callable[[Program], str]) -> str:
    seen: set[str] = set()
    stages = []
    for stage in plan.stages:
        graph = stage.program.graph
        scopes = [op.scope for op in graph.ops if op.phase == "forward" and op.scope]
        # A module may be the split point of torch.distributed.pipelining where no earlier stage has a part of it.
        begins = next(iter(scopes), None) if seen else None
        stages.append(
            {
                "rank": stage.rank,
                "devices": list(stage.devices),
                "split_point": None if begins in seen else begins,
                "received": [*stage.received, *stage.received_gradients, *stage.received_sums],
                "sent": [*stage.sent, *stage.sent_gradients, *stage.sent_sums],
                **json.loads(write(stage.program)),
            }
        )
        seen.update(scopes)
    tasks = [[{"kind": kind, "stage": s, "microbatch": m} for kind, s, m in own] for own in plan.tasks]
    document = {"microbatches": plan.microbatches, "tied": dict(plan.copies), "tasks": tasks, "stages": stages}
    return json.dumps(document, indent=1) + "\n"
