"""One call for JAX: from a function, its arguments' shapes and a mesh to shardings of arguments and results.

planned = planner.integrations.jax.plan(train_step, parameters, batch, mesh=mesh)
step = planned.jit(train_step)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.choose import hardware
from planner.export import jax_step, partition_spec
from planner.frontends.stablehlo import import_text, trace_function
from planner.frontends.stablehlo.document import ImportedStablehlo
from planner.frontends.stablehlo.traced_function import TracedFunction
from planner.integrations.common import ChosenShardings, plan_document, refuse_microbatches
from planner.ir.mesh import Mesh
from planner.ir.sharding import Shape, Sharding
from planner.planning.plan_types import Plan, Request


@dataclass(frozen=True, slots=True, eq=False)
class JaxPlan:
    """The plan, and its shardings as trees of jax.sharding.NamedSharding, under the names that jax.jit has for them.

    `in_shardings` has a tree per argument. The shardings are on `mesh`: the given one, with Auto axes.
    """

    in_shardings: Any
    out_shardings: Any
    mesh: Any
    plan: Plan

    def jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """Return the planned function, jitted under its shardings; `options` are those of jax.jit.

        Arguments that are laid out otherwise are moved first. Works where a mesh with Explicit axes is set, and within
        other jitted functions.

        Raises InvalidMesh if the plan's mesh has no devices, because it was given as text.
        """
        return jax_step.jit_on_mesh(function, self.in_shardings, self.out_shardings, mesh=self.mesh, options=options)


def plan(
    function: Any,
    *arguments: Any,
    mesh: Any,
    device: str = hardware.DEFAULT_PROFILE,
    request: Request | None = None,
    kinds: Mapping[str, str] | None = None,
    next: Mapping[int, int] | None = None,  # noqa: A002
) -> JaxPlan:
    """Plan a function, jitted or not, on a mesh: a jax.sharding.Mesh, a planner Mesh, or text such as `dp=2,tp=4`.

    `arguments` are arrays or jax.ShapeDtypeStruct. `device` names a hardware profile. `kinds` overrides the guessed
    kinds of arguments by name or root of a name (see planner.frontends.stablehlo.document).

    `next` says which result becomes which argument in the next step, both by number: `{0: 0, 1: 1}` for a step that
    returns (parameters, state, loss). Both get one layout. None: those are recognized whose trees have the same
    structure, shapes and dtypes, and a NextValueWarning names what cannot be told; `{}`: there are none. Donated
    arguments are paired in any case.

    What a PartitionSpec cannot express is dropped with a warning. Raises InvalidRequest if no plan fits the memory, and
    the errors of tracing and importing.
    """
    name = str(getattr(function, "__name__", "function"))
    refuse_microbatches(request, name, "planner.plan, whose plans repeat a step's part")
    ours, theirs = partition_spec.jax_mesh(mesh)
    trace = trace_function(function, *arguments, next=next)
    imported = import_text(trace.text, name, kinds, next_outputs=trace.text_next_outputs)
    chosen = plan_document(imported.document, name, ours, device=device, request=request)
    return JaxPlan(*_JaxExport(ours, theirs).sharding_trees(trace, imported, chosen), theirs, chosen.plan)


@dataclass(frozen=True, slots=True, eq=False)
class _JaxExport:
    ours: Mesh
    theirs: Any

    def sharding(self, sharding: Sharding, shape: Shape, where: str) -> Any:
        """Return the sharding of an array of this shape. A random key has dims of words behind it, which stay whole."""
        sharding = replace(sharding, split_axes=sharding.split_axes[: len(shape)])
        named, remarks = partition_spec.named_sharding(sharding, shape, self.ours, target=self.theirs, where=where)
        for remark in remarks:
            warnings.warn(remark, stacklevel=5)
        return named

    def sharding_trees(
        self, trace: TracedFunction, imported: ImportedStablehlo, chosen: ChosenShardings
    ) -> tuple[Any, Any]:
        """Return the trees of arguments and results; leaves that the graph does not have are replicated."""
        inputs = {
            leaf: self.sharding(chosen.choice.inputs[value], trace.argument_shapes[leaf], f"argument {value}")
            for leaf, value in zip(trace.kept, imported.arguments, strict=True)
            if value in chosen.choice.inputs
        }
        outputs = {
            number: self.sharding(sharding, trace.result_shapes[number], f"result {number}")
            for number, sharding in enumerate(chosen.choice.outputs)
        }
        for leaf, output in trace.next_outputs.items():
            # An argument that is unread or returned unchanged is no input with a next value in the graph.
            inputs[leaf] = outputs[output] = inputs.get(leaf, outputs[output])
        whole = self.sharding(Sharding(()), (), "")
        return trace.arguments_as(inputs, whole), trace.results_as(outputs, whole)
