"""A module that runs its plan's program.

The first process plans and writes the program; all others receive it. Parameters and buffers become DTensors with the
plan's placements, forward is the plan's forward program, and backward its backward program through torch's autograd.
Neither leaves a collective to DTensor.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from planner.errors import InvalidMesh, InvalidRequest, InvalidSharding, RunFailed, ShardplanError
from planner.export import dtensor
from planner.export.dtensor import JoinedPlacements
from planner.export.torch_program.initialize import Initializer, initialize_shards, reset_parameters
from planner.export.torch_program.module_inputs import InputName, PlainValue, flatten_arguments
from planner.export.torch_program.steps import write_step
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Axes


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A plan's program, and its module's arguments by path: the graph's name of a tensor, or what was planned with."""

    program: Program
    inputs: Mapping[str, InputName | PlainValue]


@dataclass(frozen=True, slots=True)
class _PlacedValue:
    """A value at the ends of a program: kind and name of an input (a result has none), placements and whole shape.

    `value` is its name in the program.
    """

    id: str
    value: str
    kind: str
    name: str
    placed: JoinedPlacements
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _PlannedStep:
    """What the first process tells the others: the program's text and ends, and gradients' placements by input.

    `kept` are the arguments that backward reads. Of several micro-batches, inputs have a part each in a first dim.
    """

    text: str
    mesh: Mesh
    arguments: tuple[_PlacedValue, ...]
    kept: tuple[str, ...]
    results: tuple[_PlacedValue, ...]
    gradients: Mapping[str, JoinedPlacements]
    inputs: Mapping[str, InputName | PlainValue]
    microbatches: int


def check_processes(mesh: Mesh) -> None:
    """Raise InvalidMesh where the processes are not as many as the devices of a mesh."""
    if dist.get_world_size() != mesh.devices:
        got = f"{dist.get_world_size()} processes"
        raise InvalidMesh(
            "torch.distributed", got=got, wanted=f"{mesh.devices}: one for each device of {mesh.notation}"
        )


def distribute_step(module: torch.nn.Module, plan_step: Callable[[], TracedStep], *, device_type: str) -> PlannedModule:
    """Return a module that runs the program that `plan_step` makes on the first process, and place its state.

    Every process calls it with the same module. Its parameters become DTensors in place, with the values of the first
    process. Raises InvalidMesh without a process group, and on every process the errors of `plan_step` and
    InvalidSharding for a program that PyTorch cannot express.
    """
    if not dist.is_initialized():
        raise InvalidMesh("torch.distributed", got="no process group", wanted="a process for each device of the mesh")
    planned = _tell_all(lambda: _describe_step(plan_step()))
    mesh = planned.mesh
    meshes: dict[tuple[Axes, ...], DeviceMesh] = {}
    for each in (*planned.arguments, *planned.results):
        if each.placed.dims not in meshes:
            meshes[each.placed.dims] = each.placed.device_mesh(device_type, mesh)
    alone = tuple((axis,) for axis in range(len(mesh.axes)))
    devices = meshes.get(alone) or JoinedPlacements(alone, ()).device_mesh(device_type, mesh)
    state = {
        each.name: (meshes[each.placed.dims], each.placed.placements)
        for each in planned.arguments
        if each.kind != "input"
    }
    dtensor.distribute_state(module, devices, state)
    return PlannedModule(module, planned, meshes)


def _tell_all(make: Callable[[], _PlannedStep]) -> _PlannedStep:
    """Return what the first process makes, on every process. Raises its error everywhere."""
    told: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            told = [make()]
        except ShardplanError as error:
            told = [error]
    dist.broadcast_object_list(told)
    if isinstance(told[0], ShardplanError):
        raise told[0]
    planned: _PlannedStep = told[0]
    return planned


def _describe_step(traced: TracedStep) -> _PlannedStep:
    program, graph = traced.program, traced.program.graph
    inputs = {entry.id: entry for entry in graph.inputs}
    # What the optimizer changes is left to torch's; what forward writes to buffers is a result.
    kinds = {number: inputs[name].kind for number, name in graph.state_outputs.items()}
    wanted = [value for number, value in enumerate(graph.outputs) if kinds.get(number, "buffer") == "buffer"]
    step = write_step(program, wanted, [name for name, entry in inputs.items() if entry.kind == "parameter"])
    buffers = {entry.next: entry for entry in graph.inputs if entry.kind == "buffer" and entry.next}

    def placed(value: str, end: str, kind: str, *, name: str) -> _PlacedValue:
        first = (graph.microbatches,) if value in program.stacked else ()
        return _PlacedValue(end, value, kind, name, _place(program, value), (*first, *program.values[value].type.shape))

    arguments = tuple(
        placed(value, name, inputs[name].kind, name=inputs[name].name) for name, value in step.arguments.items()
    )
    for each in arguments:
        if each.kind not in ("parameter", "buffer", "input"):
            raise InvalidRequest("tensor of a module", where=each.name, got=each.kind, wanted="a parameter or a buffer")
    results = tuple(
        placed(value, end, "buffer" if end in buffers else "result", name=buffers[end].name if end in buffers else end)
        for value, end in zip(step.results, wanted, strict=True)
    )
    gradients = {name: _place(program, value) for name, value in step.gradients.items()}
    return _PlannedStep(
        step.text, program.mesh, arguments, step.kept, results, gradients, traced.inputs, graph.microbatches
    )


def _place(program: Program, value: str) -> JoinedPlacements:
    held = program.values[value]
    try:
        return dtensor.join_placements(held.sharding, held.type.shape, program.mesh)
    except InvalidSharding as error:
        raise error.at(f"value {value!r}") from None


class PlannedModule(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A module whose forward and backward are a plan's program; its tensors have the original module's names."""

    def __init__(
        self, module: torch.nn.Module, planned: _PlannedStep, meshes: Mapping[tuple[Axes, ...], DeviceMesh]
    ) -> None:
        super().__init__()
        self._modules, self._parameters, self._buffers = module._modules, module._parameters, module._buffers
        self._non_persistent_buffers_set = module._non_persistent_buffers_set
        self.planned, self.meshes, self.signature = planned, meshes, inspect.signature(module.forward)
        self.program: dict[str, Any] = {}
        self.source = f"<plan of {type(module).__name__} {hashlib.sha256(planned.text.encode()).hexdigest()[:8]}>"
        linecache.cache[self.source] = len(planned.text), None, planned.text.splitlines(keepends=True), self.source
        exec(compile(planned.text, self.source, "exec"), self.program)
        self.train(module.training)
        # Not a submodule: its tensors have the names that they had.
        object.__setattr__(self, "original", module)

    def initialize(self, seed: int, init: Initializer = reset_parameters) -> None:
        """Give parameters and buffers the unsharded module's initial values of a seed; each process makes its shards.

        `init` sets the tensors that a module has itself, and is called for one module after another, while its tensors
        are whole. Optimizers are made after it. Raises InvalidRequest for a tensor that `init` does not set.
        """
        initialize_shards(self.original, seed, init)

    def forward(self, *given: Any, **named: Any) -> Any:
        """Run the program on whole inputs. Raises InvalidRequest for inputs other than those planned."""
        inputs = self._name_inputs(given, named)
        state = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        local = [self._local(each, state, inputs) for each in self.planned.arguments]
        if self.planned.gradients and torch.is_grad_enabled():
            made = _Step.apply(self, *local)
        else:
            made = self.run("forward", local)[: len(self.planned.results)]
        results = []
        for each, tensor in zip(self.planned.results, made, strict=True):
            if each.kind == "buffer":
                state[each.name].to_local().copy_(tensor.detach())
            else:
                results.append(self._global(each, tensor))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, function: str, local: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run forward or backward on local tensors. Raises RunFailed, naming the value, where torch cannot compute it.

        A process that ended is such a case: its peers' collectives fail, or pass the process group's timeout.
        """
        if torch.compiler.is_compiling():
            return [self.program["waited"](each) for each in self.program[function](*local)]
        try:
            return [self.program["waited"](each) for each in self.program[function](*local)]
        except RuntimeError as error:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.source]
            line = self.planned.text.splitlines()[(frames[0].lineno or 1) - 1].strip() if frames else function
            got = (str(error).strip() or type(error).__name__).splitlines()[0]
            what = f"the {function} program failed on rank {dist.get_rank()}"
            raise RunFailed(what, where=line, got=got, wanted="all processes of the mesh, and memory") from error

    def _name_inputs(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return tensors by their name in the plan. Raises InvalidRequest for other arguments than were planned."""
        inputs, found = {}, flatten_arguments(self.signature, given, named)
        for path in sorted({*found, *self.planned.inputs}):
            planned, got = self.planned.inputs.get(path), found.get(path)
            if isinstance(planned, InputName):
                inputs[planned.name] = got
            elif planned != got or type(planned) is not type(got):
                raise InvalidRequest("input", where=path, got=got, wanted=f"{planned!r}, as planned")
        return inputs

    def _local(self, each: _PlacedValue, state: Mapping[str, Any], inputs: Mapping[str, Any]) -> torch.Tensor:
        if each.kind != "input":
            if state[each.name].is_meta:
                wanted = "values: initialize(seed), or to_empty(device=...) and a checkpoint"
                raise InvalidRequest("tensor of the module", where=each.name, got="the meta device", wanted=wanted)
            gradient = self.planned.gradients.get(each.id)
            held = state[each.name].to_local(grad_placements=gradient.placements if gradient else None)
            # Backward reads what the buffer was before.
            return held.clone() if each.kind == "buffer" and each.id in self.planned.kept else held
        tensor = inputs.get(each.name)
        if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != each.shape:
            got = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            count = self.planned.microbatches
            wanted = f"a tensor of shape {each.shape}, as planned" + (f": {count} micro-batches" if count > 1 else "")
            raise InvalidRequest("input", where=each.name, got=got, wanted=wanted)
        return self.program["part_of"](tensor, *self.program["ARGUMENTS"][each.value][dist.get_rank()])

    def _global(self, each: _PlacedValue, tensor: torch.Tensor) -> torch.Tensor:
        dims, placements = each.placed.dims, each.placed.placements
        if all(isinstance(placement, Replicate) for placement in placements):
            return tensor
        stride = torch.empty(each.shape, device="meta").stride()
        return DTensor.from_local(tensor, self.meshes[dims], placements, shape=each.shape, stride=stride)


class _Step(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """The forward and backward programs as one op of torch's autograd; of several micro-batches, forward runs both."""

    @staticmethod
    def forward(ctx: Any, step: PlannedModule, *local: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = step.run("forward" if step.planned.microbatches == 1 else "step", local)
        count = len(step.planned.results)
        ctx.step = step
        kept = zip(step.planned.arguments, local, strict=True)
        ctx.save_for_backward(*(each for end, each in kept if end.id in step.planned.kept), *made[count:])
        return tuple(made[:count])

    @staticmethod
    def backward(ctx: Any, loss: torch.Tensor, *others: Any) -> tuple[torch.Tensor | None, ...]:
        step = ctx.step
        made = step.run("backward", ctx.saved_tensors) if step.planned.microbatches == 1 else ctx.saved_tensors
        scaled = {name: grad * loss for name, grad in zip(step.planned.gradients, made, strict=True)}
        return None, *(scaled.get(each.id) for each in step.planned.arguments)
