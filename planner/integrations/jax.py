"""One call for JAX: from a function, its arguments' shapes and a mesh to shardings of arguments and results.

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
    """The plan, and its shardings as trees of jax.sharding.NamedSharding; `arguments` has a tree per argument."""

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
    """Plan a function, jitted or not, on a mesh: a jax.sharding.Mesh, a planner Mesh, or text such as `dp=2,tp=4`.

    `arguments` are arrays or jax.ShapeDtypeStruct. `device` names a hardware profile. `kinds` overrides the guessed
    kinds of arguments by name or root of a name (see planner.frontends.stablehlo.document). What a PartitionSpec cannot
    express is dropped with a warning.

    Raises InvalidRequest if no plan fits the memory, and the errors of tracing and importing.
    """
    ours, theirs = partition_spec.jax_mesh(mesh)
    trace = trace_function(function, *arguments)
    name = str(getattr(function, "__name__", "function"))
    imported = import_text(trace.text, name, kinds)
    chosen = plan_document(imported.document, name, ours, device=device, request=request)
    export = _JaxExport(ours, theirs)
    inputs = {
        leaf: export.sharding(chosen.choice.inputs[value], chosen.graph.types[value].shape, f"argument {value}")
        for leaf, value in zip(trace.kept, imported.arguments, strict=True)
        if value in chosen.choice.inputs
    }
    outputs = {
        number: export.sharding(sharding, chosen.graph.types[value].shape, f"result {number}")
        for number, (sharding, value) in enumerate(zip(chosen.choice.outputs, chosen.graph.outputs, strict=True))
    }
    return JaxPlan(*_sharding_trees(trace, export, inputs, outputs=outputs), chosen.plan)


@dataclass(frozen=True, slots=True, eq=False)
class _JaxExport:
    ours: Mesh
    theirs: Any

    def sharding(self, sharding: Sharding, shape: Shape, where: str) -> Any:
        named, remarks = partition_spec.named_sharding(sharding, shape, self.ours, target=self.theirs, where=where)
        for remark in remarks:
            warnings.warn(remark, stacklevel=4)
        return named

    def replicated(self) -> Any:
        return self.sharding(Sharding(()), (), "")


def _sharding_trees(
    trace: TracedFunction, export: _JaxExport, inputs: Mapping[int, Any], *, outputs: Mapping[int, Any]
) -> tuple[Any, Any]:
    """Return the trees of arguments and results; leaves that the graph does not have are replicated."""
    whole = export.replicated()
    return trace.arguments_as(inputs, whole), trace.results_as(outputs, whole)
