"""What DTensor and our rows allow an op over one mesh axis, in the same letters.

`Z0` is a dim split in strides; for the other letters see `tests.testing.op_placements`. DTensor is asked for its
registered strategies of the op, for every placement that the operands may have. Two of its terms have other names with
us: an average that an op makes is a sum (a mean leaves terms of a mean), and ids to be masked are whole ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.testing._internal.distributed.fake_pg import FakeStore

from planner.ir.graph import TensorType
from tests.testing.op_placements import SIZE, row_ways, way

DTYPES = {"f32": "float32", "i64": "int64", "i32": "int32", "bool": "bool", "bf16": "bfloat16"}


@dataclass(frozen=True)
class T:
    """A tensor argument of an overload."""

    shape: tuple[int, ...]
    dtype: str = "f32"


@dataclass(frozen=True)
class Case:
    """An ATen overload with its arguments, and the op row for it; `order` gives the tensor argument of each operand."""

    overload: str
    arguments: tuple[Any, ...]
    op: str
    attrs: Mapping[str, object] = field(default_factory=dict)
    order: tuple[int, ...] | None = None
    results: tuple[int, ...] = (0,)

    @property
    def tensors(self) -> list[T]:
        return [a for a in _leaves(self.arguments) if isinstance(a, T)]

    @property
    def operands(self) -> tuple[int, ...]:
        return tuple(range(len(self.tensors))) if self.order is None else self.order


def _leaves(arguments: Any) -> Iterator[Any]:
    for each in arguments:
        yield from _leaves(each) if isinstance(each, (list, tuple)) else (each,)


@contextmanager
def one_axis() -> Iterator[Any]:
    """Create a device mesh of one axis with fake devices."""
    dist.init_process_group("fake", rank=0, world_size=SIZE, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (SIZE,))
    finally:
        dist.destroy_process_group()


class Asked:
    """Queries DTensor's strategies for a case."""

    def __init__(self, case: Case, device_mesh: Any) -> None:
        self.mesh, self.case = device_mesh, case
        self.propagator = DTensor._op_dispatcher.sharding_propagator
        namespace, name, overload = case.overload.split(".")
        self.overload = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        single, several = self.propagator.op_single_dim_strategy_funcs, self.propagator.op_strategy_funcs
        if self.overload not in single and self.overload not in several:
            raise LookupError(f"DTensor has no strategy of its own for {case.overload}")
        fake = self._schema([self._placements(t)[0] for t in case.tensors])
        made = self.propagator._propagate_tensor_meta_non_cached(fake)
        self.made = [made] if hasattr(made, "shape") else list(made)

    def ways(self) -> set[str]:
        """Return every registered placement of operands and results, except the fully replicated one."""
        found: set[str] = set()
        for placed in self._asked():
            found |= self._listed(self._schema(placed))
        return found - {"", way(["R"] * len(self.case.operands), ["R"] * len(self.case.results))}

    def _asked(self) -> Iterator[Sequence[Any]]:
        """Yield operand placements to query: all pairs for two tensors, equal ones for more.

        The newer strategies ignore them.
        """
        each = [self._placements(t) for t in self.case.tensors]
        if self.overload in self.propagator.op_single_dim_strategy_funcs:
            yield [placements[0] for placements in each]
        elif len(each) <= 2:
            yield from product(*each)
        else:
            everywhere = dict.fromkeys(placement for placements in each for placement in placements)
            yield from ([p if p in placements else placements[0] for placements in each] for p in everywhere)

    def _placements(self, tensor: T) -> list[Any]:
        return [
            Replicate(),
            *(Shard(dim) for dim, n in enumerate(tensor.shape) if n >= SIZE),
            Partial(),
            Partial("max"),
        ]

    def _schema(self, placed: Sequence[Any]) -> Any:
        left = iter(placed)

        def spec(argument: Any) -> Any:
            if isinstance(argument, (list, tuple)):
                return type(argument)(map(spec, argument))
            if not isinstance(argument, T):
                return argument
            strides = tuple(math.prod(argument.shape[i + 1 :]) for i in range(len(argument.shape)))
            meta = TensorMeta(torch.Size(argument.shape), strides, getattr(torch, DTYPES[argument.dtype]))
            return DTensorSpec(self.mesh, (next(left),), tensor_meta=meta)

        infos = (self.propagator.op_to_schema_info, self.propagator.op_to_schema_info_for_single_dim_strategy)
        info = next((each[self.overload] for each in infos if self.overload in each), None)
        return OpSchema(self.overload, tuple(map(spec, self.case.arguments)), {}, schema_info=info)

    def _listed(self, schema: Any) -> set[str]:
        """Return the placements that DTensor lists for these operand placements."""
        wrapped = self.propagator._wrap_with_op_strategy(schema)
        if self.overload in self.propagator.op_single_dim_strategy_funcs:
            listed = self.propagator.op_single_dim_strategy_funcs[self.overload](
                self.overload, wrapped.args_meta, wrapped.kwargs_meta
            )
            count = len(self.made)
            return {self._shown(placed[count:], placed[:count]) for placed in listed}
        strategy = self.propagator.op_strategy_funcs[self.overload](wrapped)
        children = strategy.children if hasattr(strategy, "children") else [strategy]
        return {self._shown_spec(each) for child in children for each in child.strategies}

    def _shown_spec(self, spec: Any) -> str:
        made = (
            spec.output_specs if isinstance(spec.output_specs, (tuple, list)) else [spec.output_specs] * len(self.made)
        )
        read = spec.input_specs or [made[0]] * len(self.case.tensors)
        return self._shown([s and s.placements[0] for s in read], [s and s.placements[0] for s in made])

    def _shown(self, read: Sequence[Any], made: Sequence[Any]) -> str:
        """Return a placement in our notation, empty if it reads an average: no op here produces one."""
        letters = ["R" if _masks(read[i]) else _letter(read[i]) for i in self.case.operands]
        if "Pavg" in letters:
            return ""
        return way(letters, [_letter(made[i]).replace("avg", "sum") for i in self.case.results])


def _masks(placement: Any) -> bool:
    return type(placement).__name__ == "_MaskPartial"


def _letter(placement: Any) -> str:
    name = type(placement).__name__
    if placement is None or name == "Replicate":
        return "R"
    if hasattr(placement, "reduce_op"):
        return f"P{placement.reduce_op}"
    return f"{'Z' if name == '_StridedShard' else 'S'}{placement.dim}"


def ours(case: Case, made: Sequence[Any]) -> set[str]:
    """Return the placements that our op row permits."""
    names = {torch_name: name for name, torch_name in DTYPES.items()}
    operands = [TensorType(t.shape, t.dtype) for t in (case.tensors[i] for i in case.operands)]
    results = [TensorType(tuple(made[i].shape), names[str(made[i].dtype).removeprefix("torch.")]) for i in case.results]
    return row_ways(case.op, operands, results, case.attrs)
