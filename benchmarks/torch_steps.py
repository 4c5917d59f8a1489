"""Trains in torch over DTensors that lie as the `dtensor` export says.

Parameters, buffers, inputs and results have the exported placements, and an op's operands are redistributed to those
that the program reads, except for partial ones, which are left to DTensor. Gradients come from torch's autograd, the
update from torch.optim.Adam with the zoo's rate. So a wrong layout, and a wrong derivative of ours, would both show in
the loss of the next step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.distributed._local_tensor import LocalTensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn import functional

from planner.export.dtensor import placements
from planner.export.formats import export_program
from planner.export.sharding_documents import load_placements
from planner.frontends.zoo.optimizers import RATE
from planner.ir.graph import Op
from planner.ir.program import OpCall, Program
from tests.testing.torch_devices import eight_local_devices

Placements = tuple[Any, ...]
DTYPES = {"f32": torch.float32, "i64": torch.int64}


def under_dtensor(program: Program, arrays: Mapping[str, Any], steps: int) -> list[float]:
    """Return the losses, on devices of one process."""
    with eight_local_devices(program.mesh.shape) as mesh:
        return losses(program, arrays, steps, mesh, lambda array: _everywhere(array, mesh))


def losses(
    program: Program, arrays: Mapping[str, Any], steps: int, mesh: Any, tensor_of: Callable[[Any], Any]
) -> list[float]:
    """Return the losses of `steps` steps on a device mesh; `tensor_of` distributes a whole array."""
    document = json.loads(export_program(program, "dtensor"))
    layouts = {entry["id"]: load_placements(entry["layout"]) for entry in document["arguments"]}
    left = {name: load_placements(layout) for name, layout in document["values"].items()}
    runs = _forward(program)
    with implicit_replication():
        held = {name: distribute_tensor(tensor_of(arrays[name]), mesh, layouts[name]) for name in layouts}
        trained = [held[entry.id].requires_grad_() for entry in program.graph.inputs if entry.kind == "parameter"]
        optimizer = torch.optim.Adam(trained, lr=RATE, foreach=False)
        found = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = _loss(runs, dict(held), left, mesh)
            found.append(_number(loss))
            loss.backward()
            optimizer.step()
    return found


def _forward(program: Program) -> list[tuple[Op, list[Placements]]]:
    """Return the ops that the loss depends on, with the placements of their operands."""
    needed, found = {program.graph.outputs[0]}, []
    for run in reversed(program.instructions):
        if isinstance(run, OpCall) and not needed.isdisjoint(run.op.values):
            op, mesh = run.op, program.mesh
            needed.update(op.inputs)
            read = [placements(run.operand_sharding(k, mesh), shape, mesh)[0] for k, shape in enumerate(op.rule.shapes)]
            found.append((op, read))
    return found[::-1]


def _everywhere(array: Any, mesh: Any) -> Any:
    return LocalTensor({device: torch.from_numpy(np.array(array)) for device in range(mesh.size())})


def _loss(
    runs: Sequence[tuple[Op, list[Placements]]], held: dict[str, Any], left: dict[str, Placements], mesh: Any
) -> Any:
    for op, read in runs:
        operands = [_laid(held[name], each, mesh) for name, each in zip(op.inputs, read, strict=True)]
        made = OPS[op.op](op, *operands)
        for name, tensor in zip(op.values, made if isinstance(made, (tuple, list)) else (made,), strict=True):
            held[name] = _laid(tensor, left[name], mesh)
    return held[runs[-1][0].values[0]]


def _laid(tensor: Any, wanted: Placements, mesh: Any) -> Any:
    if not isinstance(tensor, DTensor):
        tensor = DTensor.from_local(tensor, mesh)
    return tensor if any(each.is_partial() for each in wanted) else tensor.redistribute(mesh, wanted)


def _number(loss: Any) -> float:
    local = loss.full_tensor()
    first, *others = map(float, getattr(local, "_local_tensors", {0: local}).values())
    assert all(each == first for each in others), "every device has the same loss"
    return first


def _rope(_op: Op, x: Any, cos: Any, sin: Any) -> Any:
    low, high = x.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def _attention(_op: Op, q: Any, k: Any, v: Any) -> Any:
    """Compute attention op by op: the fused op has no DTensor rule on a CPU."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(ahead, -torch.inf).softmax(-1) @ v


def _einsum(op: Op, *operands: Any) -> Any:
    """Compute an einsum as a broadcast product and a sum: the views of torch.einsum do not fit all shards."""
    reads, kept = str(op.attrs["equation"]).split("->")
    terms, letters = [term.split() for term in reads.split(",")], kept.split()
    letters += [letter for letter in dict.fromkeys(reads.replace(",", " ").split()) if letter not in letters]
    product: Any = 1
    for term, operand in zip(terms, operands, strict=True):
        spread = operand.permute([term.index(letter) for letter in letters if letter in term])
        for place, letter in enumerate(letters):
            spread = spread if letter in term else spread.unsqueeze(place)
        product = product * spread
    summed = tuple(range(len(kept.split()), len(letters)))
    return product.sum(summed) if summed else product


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda op, x, *y: function(x, *(y or (op.attrs["scalar"],)))


def _dims(op: Op) -> dict[str, Any]:
    return {"dim": tuple(op.attrs["dims"]), "keepdim": op.attrs.get("keepdim", False)}  # type: ignore[arg-type]


OPS: dict[str, Callable[..., Any]] = {
    "add": _binary(torch.add),
    "addmm": lambda op, bias, x, w: x @ w + bias,
    "arange": lambda op: torch.arange(op.results[0].shape[0]) + op.attrs.get("start", 0),
    "cast": lambda op, x: x.to(DTYPES[op.results[0].dtype]),
    "cumsum": lambda op, x: x.cumsum(op.attrs["dim"]),
    "einsum": _einsum,
    "embedding": lambda op, table, ids: functional.embedding(ids, table),
    "equal": _binary(torch.eq),
    "gather": lambda op, x, places: x.gather(op.attrs["dim"], places),
    "gelu": lambda op, x: functional.gelu(x, approximate=op.attrs["approximate"]),
    "layer_norm": lambda op, x, w, b: functional.layer_norm(x, w.shape, w, b, op.attrs["eps"]),
    "linear": lambda op, x, w: functional.linear(x, w),
    "log": lambda op, x: x.log(),
    "max": lambda op, x: x.detach().amax(**_dims(op)),
    "mean": lambda op, x: x.mean(),
    "multiply": _binary(torch.mul),
    "reshape": lambda op, x: x.reshape(op.results[0].shape),
    "rms_norm": lambda op, x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + op.attrs["eps"]) * w,
    "rope": _rope,
    "scaled_dot_product_attention": _attention,
    "silu": lambda op, x: functional.silu(x),
    "softmax": lambda op, x: x.softmax(op.attrs["dim"]),
    "split": lambda op, x: x.split([kind.shape[op.attrs["dim"]] for kind in op.results], op.attrs["dim"]),
    "subtract": _binary(torch.sub),
    "sum": lambda op, x: x.sum(**_dims(op)),
    "sum_exp": lambda op, x, shift: (x - shift).exp().sum(-1, keepdim=True),
    "topk": lambda op, x: tuple(x.topk(op.results[0].shape[op.attrs["dim"]], op.attrs["dim"])),
    "transpose": lambda op, x: x.permute(op.attrs["permutation"]),
}
