"""Values for the shards of a module from the meta device, without the whole model in memory.

Every process walks the modules in their order, draws the whole tensors of one module after another from the same seed,
as an unsharded module would, and keeps its shards. So at most one module's own tensors are whole at a time, and the
values are those of the unsharded module bit for bit, on whatever mesh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from planner.errors import InvalidRequest

Initializer = Callable[[torch.nn.Module], Any]
"""Sets the parameters and buffers that a module has itself."""


def reset_parameters(module: torch.nn.Module) -> None:
    """Set a module's tensors as its class does when it is made. Raises InvalidRequest where it does not say how."""
    reset = getattr(module, "reset_parameters", None)
    if reset is None:
        wanted = "a method reset_parameters, or parallelize(...).initialize(seed, init=...)"
        raise InvalidRequest("module cannot be initialized", got=type(module).__name__, wanted=wanted)
    reset()


def initialize_shards(module: torch.nn.Module, seed: int, init: Initializer) -> None:
    """Replace the DTensors of a module, in place, by ones with the values that `init` draws from the seed.

    `init` is called for each module that has tensors itself, in the order of `modules()`. A tensor of several modules
    has the values that the last of them gave it. Raises InvalidRequest, naming the tensor, for one that `init` leaves.
    """
    torch.manual_seed(seed)
    drawn: dict[int, torch.Tensor] = {}
    owners = [(name, owner) for name, owner in module.named_modules() if _own(owner)]
    for path, owner in owners:
        held = _own(owner)
        whole = {name: _unset(tensor) for name, tensor in held.items()}
        _replace(owner, whole)
        try:
            with torch.no_grad():
                init(owner)
            made = {name: getattr(owner, name) for name in held}
        finally:
            _replace(owner, held)
        for name, tensor in held.items():
            if _has_unset(made[name]):
                where = f"{path}.{name}".lstrip(".")
                raise InvalidRequest("tensor not initialized", where=where, wanted="values for all its elements")
            drawn[id(tensor)] = _cut(made[name], tensor)
        del whole, made
    for _, owner in owners:
        _replace(owner, {name: drawn[id(tensor)] for name, tensor in _own(owner).items()})


def _own(owner: torch.nn.Module) -> dict[str, Any]:
    held = {**owner._parameters, **owner._buffers}
    return {name: tensor for name, tensor in held.items() if tensor is not None}


def _replace(owner: torch.nn.Module, tensors: dict[str, Any]) -> None:
    for held in (owner._parameters, owner._buffers):
        held.update({name: tensor for name, tensor in tensors.items() if name in held})


def _unset(tensor: DTensor) -> torch.Tensor:
    """Return a whole tensor of marks of what is not set."""
    made = torch.full(tensor.shape, _mark(tensor.dtype), dtype=tensor.dtype, device=tensor.device_mesh.device_type)
    return _as_kind(made, tensor)


def _mark(dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return False
    return torch.nan if dtype.is_floating_point else torch.iinfo(dtype).min


def _has_unset(tensor: torch.Tensor) -> bool:
    if tensor.dtype == torch.bool:
        return False
    mark = _mark(tensor.dtype)
    return bool((tensor.isnan() if mark != mark else tensor == mark).any())


def _cut(whole: torch.Tensor, tensor: DTensor) -> torch.Tensor:
    """Return this process's shard of a tensor that every process has."""
    return _as_kind(
        distribute_tensor(whole.detach(), tensor.device_mesh, tensor.placements, src_data_rank=None), tensor
    )


def _as_kind(made: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return torch.nn.Parameter(made, requires_grad=tensor.requires_grad) if is_parameter else made
