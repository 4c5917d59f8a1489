"""One line for JAX: a function, shapes of its arguments and a mesh in; shardings for its arguments and results out.

planned = planner.integrations.jax.plan(train_step, parameters, batch, mesh=mesh)
step = jax.jit(train_step, in_shardings=planned.arguments, out_shardings=planned.results)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.choose import hardware
from planner.export import partition_spec
from planner.frontends.stablehlo import import_text, trace_function
from planner.frontends.stablehlo.traced_function import TracedFunction
from planner.integrations.common import plan_document
from planner.ir.mesh import Mesh
from planner.ir.sharding import Shape, Sharding
from planner.planning.plan_types import Plan, Request


@dataclass(frozen=True, slots=True, eq=False)
class JaxPlan:
    """Trees of jax.sharding.NamedSharding: `arguments` a tuple, one tree for each; and the plan they come from."""

    arguments: Any
    results: Any
    plan: Plan


def plan(
    function: Any,
    *arguments: Any,
    mesh: Any,
    device: str = hardware.DEFAULT_PROFILE,
    request: Request | None = None,
    kinds: Mapping[str, str] | None = None,
) -> JaxPlan:
    """The best shardings of a function, jitted or not, on a mesh of JAX's (or of ours, or `dp=2,tp=4`).

    `arguments` are arrays or jax.ShapeDtypeStruct. `device` is a hardware profile; `kinds` says what arguments are, by
    name or root of a name, where the guess (see planner.frontends.stablehlo.document) is wrong. What a PartitionSpec
    cannot say is left out with a warning.

    Raises InvalidRequest where nothing fits the memory, and what tracing and importing raise.
    """
    ours, theirs = partition_spec.jax_mesh(mesh)
    trace = trace_function(function, *arguments)
    name = str(getattr(function, "__name__", "function"))
    found = import_text(trace.text, name, kinds)
    made = plan_document(found.document, name, ours, device=device, request=request)
    export = _JaxExport(ours, theirs)
    inputs = {
        leaf: export.sharding(made.choice.inputs[value], made.graph.types[value].shape, f"argument {value}")
        for leaf, value in zip(trace.kept, found.arguments, strict=True)
        if value in made.choice.inputs
    }
    outputs = {
        number: export.sharding(sharding, made.graph.types[value].shape, f"result {number}")
        for number, (sharding, value) in enumerate(zip(made.choice.outputs, made.graph.outputs, strict=True))
    }
    return JaxPlan(*_sharding_trees(trace, export, inputs, outputs=outputs), made.plan)


@dataclass(frozen=True, slots=True, eq=False)
class _JaxExport:
    ours: Mesh
    theirs: Any

    def sharding(self, sharding: Sharding, shape: Shape, where: str) -> Any:
        made, remarks = partition_spec.named_sharding(sharding, shape, self.ours, target=self.theirs, where=where)
        for remark in remarks:
            warnings.warn(remark, stacklevel=4)
        return made

    def replicated(self) -> Any:
        return self.sharding(Sharding(()), (), "")


def _sharding_trees(
    trace: TracedFunction, export: _JaxExport, inputs: Mapping[int, Any], *, outputs: Mapping[int, Any]
) -> tuple[Any, Any]:
    """What no graph reads is replicated."""
    whole = export.replicated()
    return trace.arguments_as(inputs, whole), trace.results_as(outputs, whole)
