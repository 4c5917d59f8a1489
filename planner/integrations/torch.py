"""One call for PyTorch: from a module, example inputs and a mesh to DTensor placements by name.

planned = planner.integrations.torch.plan(module, (ids,), mesh="dp=2,tp=4")
weight = distribute_tensor(weight, device_mesh, planned.parameters["lm_head.weight"])
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.choose import hardware
from planner.export import dtensor
from planner.frontends.torch import build_module_document
from planner.integrations.common import ChosenShardings, plan_document
from planner.ir.mesh import Mesh
from planner.planning.plan_types import Plan, Request

TensorPlacements = tuple[Any, ...]
"""A DTensor placement per mesh axis, in the order of the mesh."""


@dataclass(frozen=True, slots=True, eq=False)
class TorchPlan:
    """The plan, and its placements: of parameters and buffers by name, of inputs by name, of results in order."""

    parameters: Mapping[str, TensorPlacements]
    inputs: Mapping[str, TensorPlacements]
    results: tuple[TensorPlacements, ...]
    plan: Plan


def plan(
    module: Any,
    example_inputs: tuple[Any, ...] = (),
    mesh: Mesh | str = "1",
    *,
    keywords: Mapping[str, Any] | None = None,
    train: str | None = None,
    device: str = hardware.DEFAULT_PROFILE,
    request: Request | None = None,
) -> TorchPlan:
    """Plan a torch.nn.Module on a mesh: a planner Mesh, or text such as `dp=2,tp=4`.

    Weights and inputs may be on the meta device. `train` (sgd, sgd-momentum or adam) plans a training step of a module
    that returns its loss; None plans a forward pass. `device` names a hardware profile. What DTensor cannot express is
    dropped with a warning.

    Raises InvalidRequest if no plan fits the memory, and the errors of tracing and importing.
    """
    ours = Mesh.parse(mesh) if isinstance(mesh, str) else mesh
    document = build_module_document(module, example_inputs, keywords or {}, train=train)
    return _place_tensors(plan_document(document, type(module).__name__, ours, device=device, request=request), ours)


def _place_tensors(chosen: ChosenShardings, mesh: Mesh) -> TorchPlan:
    graph, choice = chosen.graph, chosen.choice

    def placements(sharding: Any, value: str, where: str) -> TensorPlacements:
        placed, remarks = dtensor.placements(sharding, graph.types[value].shape, mesh)
        for remark in remarks:
            warnings.warn(f"{where}: {remark}", stacklevel=4)
        return placed

    by_kind: dict[bool, dict[str, TensorPlacements]] = {True: {}, False: {}}
    for entry in graph.inputs:
        by_kind[entry.kind == "input"][entry.name] = placements(choice.inputs[entry.id], entry.id, entry.name)
    outputs = zip(choice.outputs, graph.outputs, strict=True)
    results = tuple(placements(each, value, f"result {n}") for n, (each, value) in enumerate(outputs))
    return TorchPlan(by_kind[False], by_kind[True], results, chosen.plan)
