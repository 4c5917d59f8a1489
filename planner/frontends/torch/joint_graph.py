"""A training step: the loss of a model, differentiated by torch's own autograd, as one graph.

The model is exported as for a forward pass, small pieces are combined and products, attention and norms become the
ops of `fused`; then the whole is traced forward and backward. Regions without gradients are written out first, what
leaves them detached.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    GradAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    PlainAOTOutput,
)
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_map_only, tree_unflatten

from planner.errors import InvalidGraph
from planner.frontends.torch import custom_ops, inline_regions
from planner.frontends.torch.exported_graph import (
    ExportedGraph,
    Placeholder,
    decompose_and_combine,
    first_of_tied,
    functionalize,
)

ATEN = torch.ops.aten
PREFIX = "module."
"""Of the names in a module whose loss is taken outside of it."""

Loss = Callable[[Any, Any], Any]


class ModuleWithLoss(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """loss(what a module gives, labels)."""

    def __init__(self, module: torch.nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, labels: Any, *args: Any, **kwargs: Any) -> Any:
        return self.loss(self.module(*args, **kwargs), labels)


def differentiate(program: ExportedProgram, name: str) -> ExportedGraph:
    """Loss, and gradients of all parameters it depends on, of a program whose one result is the loss.

    The program is used up. Raises InvalidGraph where the result is not one floating-point number.
    """
    program = functionalize(program, name)
    _check_loss(program, name)
    inline_regions.inline_regions(program.graph, program.graph_module)
    decompose_and_combine(program)
    _replace_with_rows(program.graph)
    program.graph_module.recompile()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with ExitStack() as stack, tracing(TracingContext(mode)), mode, preserve_node_meta():
        stack.enter_context(warnings.catch_warnings(action="ignore"))  # torch's own
        _pretend_cpu(program)
        args, kwargs = _example_inputs(program)
        module = program.module()
        made = aot_export_joint_with_descriptors(stack, module, args, kwargs, decompositions={})
    return _to_exported_graph(made.graph_module.graph, program)


def _check_loss(program: ExportedProgram, name: str) -> None:
    (output,) = program.graph.find_nodes(op="output")
    made = [node.meta["val"] for node in output.args[0] if isinstance(node, Node)]
    got = [f"{each.dtype}{list(each.shape)}" for each in made]
    if len(made) != 1 or made[0].numel() != 1 or not made[0].dtype.is_floating_point:
        raise InvalidGraph("results to differentiate", where=name, got=got, wanted="a loss: one floating-point number")


def _pretend_cpu(program: ExportedProgram) -> None:
    """In place, under a fake mode: tensors without storage, but not on the meta device.

    There torch has kernels for some calls made of others, which then have no gradient.
    """
    moved: dict[int, torch.Tensor] = {}
    for held in (program.state_dict, program.constants):
        for tensor in held.values():
            if isinstance(tensor, torch.Tensor) and id(tensor) not in moved:
                made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
                trained = isinstance(tensor, torch.nn.Parameter)
                moved[id(tensor)] = torch.nn.Parameter(made, tensor.requires_grad) if trained else made
        held.update({name: moved[id(tensor)] for name, tensor in held.items() if id(tensor) in moved})
    for node in program.graph.nodes:
        node.args, node.kwargs = tree_map_only(torch.device, lambda _: torch.device("cpu"), (node.args, node.kwargs))
    program.graph_module.recompile()


def _example_inputs(program: ExportedProgram) -> Any:
    """Positional and named arguments like those the program was exported with."""
    names = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    given = [names.get(name, name) if isinstance(name, str) else name for name in program.graph_signature.user_inputs]
    return tree_unflatten([_meta_like(value) for value in given], program.call_spec.in_spec)


def _meta_like(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device="cpu")


SAME_ARGUMENTS = {
    ATEN.linear.default: custom_ops.OPS.linear.default,
    ATEN.scaled_dot_product_attention.default: custom_ops.OPS.scaled_dot_product_attention.default,
}


def _replace_with_rows(graph: Graph) -> None:
    """Products, attention and norms as the ops whose gradients are rows."""
    for node in graph.nodes:
        if node.target in SAME_ARGUMENTS:
            node.target = SAME_ARGUMENTS[node.target]
        elif node.target is ATEN.rms_norm.default and _has_one_weight(node):
            x, _, weight, *eps = node.args
            node.target = custom_ops.OPS.rms_norm.default
            node.args = (x, weight, *(eps or [torch.finfo(x.meta["val"].dtype).eps]))
        elif str(node.target) in GROUPED and len(node.args[1].meta["val"].shape) == 3:
            node.target, node.args = custom_ops.OPS.grouped_mm.default, (*node.args, *node.kwargs.values())[:3]
            node.kwargs = {}
        elif node.target is ATEN.histc.default and _counts_by_integers(node):
            node.target, node.args = custom_ops.OPS.histogram.default, node.args[:2]


def _counts_by_integers(node: Node) -> bool:
    """Each in a bin of its own; the processor counts floats only."""
    x, *bins = node.args
    return not x.meta["val"].is_floating_point() and len(bins) == 3 and tuple(bins[1:]) == (0, bins[0] - 1)


GROUPED = ("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")


def _has_one_weight(node: Node) -> bool:
    return len(node.args) > 2 and node.args[2] is not None and len(node.args[1]) == 1


def _to_exported_graph(graph: Graph, program: ExportedProgram) -> ExportedGraph:
    (output,) = graph.find_nodes(op="output")
    given = list(program.graph_signature.user_inputs)
    names = _names(program)
    placeholders = {node.name: _placeholder(node, names, given) for node in graph.find_nodes(op="placeholder")}
    made = list(zip(output.args[0], output.meta["desc"], strict=True))
    (loss,) = (node for node, what in made if isinstance(what, PlainAOTOutput))
    gradients: Mapping[str, Node] = {
        names[what.grad_of.target]: node
        for node, what in made
        if isinstance(what, GradAOTOutput) and isinstance(what.grad_of, ParamAOTInput) and node is not None
    }
    return ExportedGraph(graph, placeholders, (loss,), "torch.aot_autograd", gradients)


def _names(program: ExportedProgram) -> dict[str, str]:
    """Of parameters and buffers, those in the model; of tied parameters the first."""
    first = first_of_tied(program)
    targets = [spec.target for spec in program.graph_signature.input_specs if spec.target is not None]
    shown = {target: (first[target].target if target in first else target) or target for target in targets}
    return {target: name.removeprefix(PREFIX) for target, name in shown.items()}


def _placeholder(node: Node, names: Mapping[str, str], given: list[Any]) -> Placeholder:
    """The loss's own gradient is one."""
    match node.meta["desc"]:
        case ParamAOTInput(target=target):
            return Placeholder(names[target], "parameter", names[target])
        case BufferAOTInput(target=target):
            return Placeholder(names[target], "buffer", names[target])
        case PlainAOTInput(idx=number):
            return Placeholder(str(given[number]), "input", str(given[number]))
        case _:
            return Placeholder(node.name, "constant", node.name, 1.0)
