"""A plan document run and traced over gloo.

There are two processes, and the folder has the plan of `stack()`, and one of two micro-batches of it. Each process runs
two training steps, the first of which the first process profiles, one of two micro-batches, a program of an op and one
of several micro-batches, and returns the largest error of losses and of gradients of two batches, and the messages for
a plan that does not fit, for micro-batches other than the plan's, and for an input with a NaN.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import planner.torch
from planner import Plan, Request
from planner.documents.graphs import load_graph
from planner.documents.hardware import read_hardware
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.torch import build_module_document
from planner.ir.mesh import Mesh
from planner.judge.standard_layouts import LayoutName
from tests.testing.gloo import find_error, join_gloo

TRAIN = "adamw"


class Stack(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


class Repeated(Stack):
    """Planned for several micro-batches; its traces have its name."""


def stack(width: int = 6) -> tuple[Stack, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    return Stack(width), (torch.randn(4, 8),)


def plan_stack(mesh: str) -> planner.torch.TorchPlan:
    module, inputs = stack()
    request = Request(layout="zero1", deterministic=True, gap=0.05)
    device = "a100-sxm"  # its collectives overlap with ops
    return planner.torch.plan(module, inputs, mesh, train=TRAIN, master="none", device=device, request=request)


def plan_loop(mesh: str, name: str, layout: LayoutName) -> Plan:
    """Plan a step of two micro-batches."""
    document = build_module_document(*stack(), {}, train=TRAIN, master="none") | {"name": name}
    parsed = Mesh.parse(mesh)
    graph = load_graph(validate_document(GraphDocument, document, "step"), parsed)
    request = Request(layout=layout, deterministic=True, gap=0.05, microbatches=2)
    return planner.plan(graph, parsed, read_hardware("a100-sxm"), request=request)


def run_rank(rank: int, folder: str, mesh: str) -> list[Any]:
    os.environ["SHARDPLAN_TRACE"] = str(Path(folder, "trace"))
    with join_gloo(folder, rank, Mesh.parse(mesh).devices):
        return _run_plans(rank, folder)


def _run_plans(rank: int, folder: str) -> list[Any]:
    plan, (module, inputs) = Path(folder, "plan.json"), stack()
    wanted = float(module(*inputs))
    planned = planner.torch.parallelize(module, inputs, plan=plan, train=TRAIN)
    with torch.profiler.profile(record_shapes=True) as measured:
        loss = planned(*inputs)
        loss.backward()
    if rank == 0:
        measured.export_chrome_trace(str(Path(folder, "profile.json")))
    torch.compile(planned, fullgraph=True)(*inputs).backward()
    repeated = Repeated(6)
    repeated.load_state_dict(stack()[0].state_dict())
    repeated = planner.torch.parallelize(repeated, inputs, plan=Path(folder, "repeated.json"), train=TRAIN)
    with torch.no_grad():
        alone = float(repeated(torch.stack([inputs[0]] * 2)))
    errors = [abs(float(loss.detach()) - wanted), abs(alone - 2 * wanted), _accumulate(repeated, repeated)]
    errors.append(_accumulate(lambda both: planned(both[0]) + planned(both[1]), planned))
    for text in ("program.py", "loop.py"):
        exported = runpy.run_path(str(Path(folder, text)))
        whole = [torch.ones(shape) for shape in _list_shapes(exported["ARGUMENTS"])]
        exported["program"](*exported["local"](*whole))
    calls: list[Callable[[], object]] = [
        lambda: planner.torch.parallelize(stack()[0], inputs, "dp=4", train=TRAIN),
        lambda: planner.torch.parallelize(stack()[0], inputs, "tp=2", plan=plan, train=TRAIN),
        lambda: planner.torch.parallelize(stack(5)[0], inputs, plan=plan, train=TRAIN),
        lambda: planner.torch.parallelize(stack()[0], inputs, plan=Path(folder, "other.json"), train=TRAIN),
        lambda: repeated(inputs[0]),
        lambda: planned(torch.full((4, 8), torch.nan)),
    ]
    return [max(errors), *map(find_error, calls)]


def _accumulate(call: Callable[[torch.Tensor], Any], planned: planner.torch.PlannedModule) -> float:
    """Return the largest error of the loss that `call` computes of two batches, and of their gradients added up."""
    whole, (x,) = stack()
    planned.zero_grad()
    wanted = whole(x) + whole(2 * x)
    wanted.backward()
    loss = call(torch.stack([x, 2 * x]))
    (loss / 2).backward()  # the gradient of what is made of a loss is scaled
    grads = {name: 2 * each.grad.full_tensor() for name, each in planned.named_parameters()}
    error = max(float((grads[name] - each.grad).abs().max()) for name, each in whole.named_parameters())
    return max(error, abs(float((loss - wanted).detach())))


def _list_shapes(arguments: dict[str, Any]) -> list[list[int]]:
    """Return the whole shapes of an exported module's arguments."""
    held = [[bounds for _, _, bounds in ranks] for ranks in arguments.values()]
    return [[max(stop for _, stop in dim) for dim in zip(*ranks, strict=True)] for ranks in held]
