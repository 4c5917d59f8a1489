"""One line for PyTorch: a module, example inputs and a mesh in; DTensor placements by name out.

planned = planner.torch.plan(module, (ids,), mesh="dp=2,tp=4")
weight = distribute_tensor(weight, device_mesh, planned.parameters["lm_head.weight"])
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.choose import hardware
from planner.export import dtensor
from planner.frameworks import Chosen, chosen
from planner.frontends.torch import module_document
from planner.model.mesh import Mesh
from planner.plans import Plan, Request

Placements = tuple[Any, ...]
"""One a mesh axis, in the order of the mesh."""


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """By name: placements of parameters and buffers, of the inputs; in order: of the results. And the plan."""

    parameters: Mapping[str, Placements]
    inputs: Mapping[str, Placements]
    results: tuple[Placements, ...]
    plan: Plan


def plan(
    module: Any,
    example_inputs: tuple[Any, ...] = (),
    mesh: Mesh | str = "1",
    *,
    keywords: Mapping[str, Any] | None = None,
    train: str | None = None,
    device: str = hardware.DEFAULT,
    request: Request | None = None,
) -> Planned:
    """The best placements of a torch.nn.Module's parameters and inputs on a mesh of ours, or `dp=2,tp=4`.

    Weights and inputs may be on the meta device. `train` (sgd, sgd-momentum or adam) plans a training step of a module
    that returns its loss; `device` is a hardware profile. What DTensor cannot say is left out with a warning.

    Raises InvalidRequest where nothing fits the memory, and what tracing and importing raise.
    """
    ours = Mesh.parse(mesh) if isinstance(mesh, str) else mesh
    document = module_document(module, example_inputs, keywords or {}, train)
    return _placed(chosen(document, type(module).__name__, ours, device, request), ours)


def _placed(found: Chosen, mesh: Mesh) -> Planned:
    graph, choice = found.graph, found.choice

    def placements(sharding: Any, value: str, where: str) -> Placements:
        made, remarks = dtensor.placements(sharding, graph.types[value].shape, mesh)
        for remark in remarks:
            warnings.warn(f"{where}: {remark}", stacklevel=4)
        return made

    by_kind: dict[bool, dict[str, Placements]] = {True: {}, False: {}}
    for entry in graph.inputs:
        by_kind[entry.kind == "input"][entry.name] = placements(choice.inputs[entry.id], entry.id, entry.name)
    outputs = zip(choice.outputs, graph.outputs, strict=True)
    results = tuple(placements(each, value, f"result {n}") for n, (each, value) in enumerate(outputs))
    return Planned(by_kind[False], by_kind[True], results, found.plan)
