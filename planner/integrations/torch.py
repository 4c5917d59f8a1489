"""One call for PyTorch: from a module, example inputs and a mesh to DTensor placements, or to a module that runs them.

planned = planner.integrations.torch.plan(module, (ids,), mesh="dp=2,tp=4")
planned.apply(module, device_mesh)
logits = module(distribute_tensor(ids, device_mesh, planned.inputs["ids"]))
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.choose import hardware
from planner.choose.cost import CostModel
from planner.documents.graphs import load_mesh
from planner.documents.hardware import load_planned_hardware
from planner.documents.plans import read_plan
from planner.documents.schemas import PlanDocument
from planner.errors import InvalidMesh, InvalidRequest
from planner.export import dtensor
from planner.export.torch_program.module_inputs import name_arguments, order_arguments
from planner.export.torch_program.modules import PlannedModule, TracedStep, check_processes, distribute_step
from planner.frontends.torch import build_graph_document, build_module_document
from planner.frontends.torch.capture import trace_module
from planner.frontends.zoo.update import MasterMode, parse_training
from planner.integrations.common import ChosenShardings, load_planned_program, plan_document, refuse_microbatches
from planner.ir.graph import INPUT_KINDS
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.overlap import order_by_schedule
from planner.planning.plan_types import Plan, Request

TensorPlacements = tuple[Any, ...]
"""A DTensor placement per mesh axis, in the order of the mesh."""


@dataclass(frozen=True, slots=True, eq=False)
class TorchPlan:
    """The plan, and its placements: by name of parameters, buffers, optimizer state and inputs, in order of results.

    A state of the optimizer is named by its parameter, such as `lm_head.weight.exp_avg`; tied parameters have the
    first of their names.
    """

    parameters: Mapping[str, TensorPlacements]
    buffers: Mapping[str, TensorPlacements]
    optimizer_state: Mapping[str, TensorPlacements]
    inputs: Mapping[str, TensorPlacements]
    results: tuple[TensorPlacements, ...]
    plan: Plan

    def apply(self, module: Any, device_mesh: Any) -> None:
        """Replace the parameters and buffers of a module by DTensors in place, on a torch DeviceMesh of its mesh.

        Tensors that the plan does not mention are replicated. Values are those of the first rank. A module on the meta
        device stays there: `module.to_empty(device=...)` then allocates each device's part, to be initialized.

        Raises InvalidMesh for another mesh, InvalidRequest for another module or one that is already distributed.
        """
        dtensor.check_device_mesh(device_mesh, self.plan.model.mesh)
        state = {name: (device_mesh, placed) for name, placed in {**self.parameters, **self.buffers}.items()}
        dtensor.distribute_state(module, device_mesh, state)


def plan(
    module: Any,
    example_inputs: tuple[Any, ...] = (),
    mesh: Mesh | str = "1",
    *,
    keywords: Mapping[str, Any] | None = None,
    train: str | None = None,
    clip_grad_norm: float | None = None,
    master: MasterMode = "auto",
    device: str = hardware.DEFAULT_PROFILE,
    request: Request | None = None,
) -> TorchPlan:
    """Plan a torch.nn.Module on a mesh: a planner Mesh, or text such as `dp=2,tp=4`.

    Weights and inputs may be on the meta device. `train` plans a training step of a module that returns its loss, with
    an optimizer such as `adamw` or `adamw:lr=3e-4`; None plans a forward pass. Parameters that do not require a
    gradient are not trained. `clip_grad_norm` limits the norm of all gradients together; `master` is whether
    parameters narrower than f32 have a copy of f32 in the optimizer's state: f32, none, or auto, as is usual for the
    optimizer. `device` names a hardware profile. What DTensor cannot express is dropped with a warning.

    Raises InvalidRequest if no plan fits the memory, and the errors of tracing and importing.
    """
    refuse_microbatches(request, type(module).__name__, "planner.torch.parallelize, which runs them")
    ours = Mesh.parse(mesh) if isinstance(mesh, str) else mesh
    document = build_module_document(
        module, example_inputs, keywords or {}, train=train, clip_grad_norm=clip_grad_norm, master=master
    )
    return _place_tensors(plan_document(document, type(module).__name__, ours, device=device, request=request), ours)


def parallelize(
    module: Any,
    example_inputs: tuple[Any, ...],
    mesh: Mesh | str | None = None,
    *,
    keywords: Mapping[str, Any] | None = None,
    train: str | None = None,
    plan: str | Path | None = None,
    device: str = hardware.DEFAULT_PROFILE,
    device_type: str = "cpu",
    request: Request | None = None,
) -> PlannedModule:
    """Return a module that runs the plan's program on a mesh of all processes of torch.distributed.

    Every process calls it, with the same module: its parameters become DTensors in place, with the values of the first
    process, which plans. Called with whole inputs, each process takes its parts of them. With `train`, a module that
    returns its loss is planned with an optimizer's memory (`adamw`); any optimizer of torch then updates its
    parameters. `plan` is the file of a plan of this module, which the first process reads instead of planning: mesh,
    hardware and request are the plan's. `device` names a hardware profile, `device_type` is torch's. Results that
    devices do not hold whole are DTensors. A request or plan of several micro-batches is planned for the inputs of one;
    the module then takes all of them at once, in a first dim of each tensor, and its loss is the sum of theirs.

    Raises InvalidMesh where the processes are not as many as the devices or the plan's mesh is another, InvalidRequest
    for a plan of another module or of another version of torch, InvalidSharding for a program that PyTorch cannot
    express, and the errors of planning: the same on every process.
    """
    name, training = type(module).__name__, parse_training(train, None, "none" if train else "auto")

    def make_program(known: PlanDocument | None, ours: Mesh, document: Mapping[str, Any]) -> Program:
        if known is None:
            chosen = plan_document(document, name, ours, device=device, request=request)
            assert chosen.plan.analysis is not None, "a plan with a choice has an analysis"
            return order_by_schedule(chosen.plan.analysis, chosen.plan.limit_bytes)
        program = load_planned_program(known, document, name)
        analysis = Analysis(program, CostModel(program.mesh, load_planned_hardware(known)))
        return order_by_schedule(analysis, known.request.memory_limit_bytes)

    def plan_step() -> TracedStep:
        known = None if plan is None else read_plan(Path(plan))
        ours = Mesh.parse(mesh) if isinstance(mesh, str) else mesh
        planned = ours if known is None else load_mesh(known.mesh)
        if planned is None:
            raise InvalidRequest("parallelize", got="neither mesh nor plan", wanted="one of them")
        if ours is not None and (ours.names, ours.shape) != (planned.names, planned.shape):
            raise InvalidMesh("mesh", got=ours.notation, wanted=f"{planned.notation}: that of the plan")
        check_processes(planned)
        args, kwargs = order_arguments(module, example_inputs, keywords or {})
        traced = trace_module(module, args, kwargs, name=name)
        inputs = name_arguments(module, args, kwargs, leaves=traced.graph_signature.user_inputs)
        return TracedStep(make_program(known, planned, build_graph_document(traced, name, training)), inputs)

    return distribute_step(module, plan_step, device_type=device_type)


def _place_tensors(chosen: ChosenShardings, mesh: Mesh) -> TorchPlan:
    graph, choice = chosen.graph, chosen.choice

    def placements(sharding: Any, value: str, where: str) -> TensorPlacements:
        placed, remarks = dtensor.placements(sharding, graph.types[value].shape, mesh)
        for remark in remarks:
            warnings.warn(f"{where}: {remark}", stacklevel=4)
        return placed

    by_kind: dict[str, dict[str, TensorPlacements]] = {kind: {} for kind in INPUT_KINDS}
    for entry in graph.inputs:
        by_kind[entry.kind][entry.name] = placements(choice.inputs[entry.id], entry.id, entry.name)
    outputs = zip(choice.outputs, graph.outputs, strict=True)
    results = tuple(placements(each, value, f"result {n}") for n, (each, value) in enumerate(outputs))
    return TorchPlan(
        parameters=by_kind["parameter"],
        buffers=by_kind["buffer"],
        optimizer_state=by_kind["optimizer_state"],
        inputs=by_kind["input"],
        results=results,
        plan=chosen.plan,
    )
