"""One line for PyTorch: a module, example inputs and a mesh in; DTensor placements by name out.

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
"""One a mesh axis, in the order of the mesh."""


@dataclass(frozen=True, slots=True, eq=False)
class TorchPlan:
    """By name: placements of parameters and buffers, of the inputs; in order: of the results. And the plan."""

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
    """The best placements of a torch.nn.Module's parameters and inputs on a mesh of ours, or `dp=2,tp=4`.

    Weights and inputs may be on the meta device. `train` (sgd, sgd-momentum or adam) plans a training step of a module
    that returns its loss; `device` is a hardware profile. What DTensor cannot say is left out with a warning.

    Raises InvalidRequest where nothing fits the memory, and what tracing and importing raise.
    """
    ours = Mesh.parse(mesh) if isinstance(mesh, str) else mesh
    document = build_module_document(module, example_inputs, keywords or {}, train=train)
    return _place_tensors(plan_document(document, type(module).__name__, ours, device=device, request=request), ours)


def _place_tensors(found: ChosenShardings, mesh: Mesh) -> TorchPlan:
    graph, choice = found.graph, found.choice

    def placements(sharding: Any, value: str, where: str) -> TensorPlacements:
        made, remarks = dtensor.placements(sharding, graph.types[value].shape, mesh)
        for remark in remarks:
            warnings.warn(f"{where}: {remark}", stacklevel=4)
        return made

    by_kind: dict[bool, dict[str, TensorPlacements]] = {True: {}, False: {}}
    for entry in graph.inputs:
        by_kind[entry.kind == "input"][entry.name] = placements(choice.inputs[entry.id], entry.id, entry.name)
    outputs = zip(choice.outputs, graph.outputs, strict=True)
    results = tuple(placements(each, value, f"result {n}") for n, (each, value) in enumerate(outputs))
    return TorchPlan(by_kind[False], by_kind[True], results, found.plan)
