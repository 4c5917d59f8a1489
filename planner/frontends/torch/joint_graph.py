"""A training step as one graph: the loss of a model, differentiated by torch's own autograd.

The model is exported as for a forward pass. Regions without gradients are inlined, small pieces combined, and products,
attention and norms replaced by the ops of `custom_ops`; then forward and backward pass are traced together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
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
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_map_only, tree_structure, tree_unflatten

from planner.errors import InvalidGraph
from planner.frontends.torch import custom_ops, inline_regions
from planner.frontends.torch.complex_pairs import split_complex
from planner.frontends.torch.exported_graph import (
    ExportedGraph,
    Placeholder,
    constant_numbers,
    decompose_and_combine,
    first_of_tied,
    functionalize,
    written_buffers,
)
from planner.frontends.torch.location import refuse_detached_writes

ATEN = torch.ops.aten
PREFIX = "module."
"""The prefix of parameter names inside ModuleWithLoss."""

Loss = Callable[[Any, Any], Any]


class ModuleWithLoss(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A module followed by a loss: loss(module(...), labels)."""

    def __init__(self, module: torch.nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, labels: Any, *args: Any, **kwargs: Any) -> Any:
        return self.loss(self.module(*args, **kwargs), labels)


def differentiate(program: ExportedProgram, name: str) -> ExportedGraph:
    """Return the graph of a loss and of the gradients of all parameters that it depends on.

    The one result of `program` is the loss; the program is modified and cannot be used afterwards. Raises InvalidGraph
    if the result is not a single floating-point number.
    """
    inline_regions.inline_regions(program.graph, program.graph_module)
    refuse_detached_writes(program.graph, name)
    program = functionalize(program, name)
    _check_loss(program, name)
    split_complex(program.graph, program, name)
    decompose_and_combine(program)
    _replace_with_rows(program.graph)
    program.graph_module.recompile()
    numbers = constant_numbers(program)
    try:
        return _to_exported_graph(_trace_joint(program), program, numbers)
    except Exception as failure:  # torch's autograd runs the model's calls, and may raise anything
        got = f"{type(failure).__name__}: {failure}".splitlines()[0]
        wanted = "calls that torch can differentiate and whose shapes do not depend on data"
        raise InvalidGraph("torch cannot differentiate the model", where=name, got=got, wanted=wanted) from failure


def _trace_joint(program: ExportedProgram) -> Graph:
    """Trace forward and backward pass together."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with ExitStack() as stack, tracing(TracingContext(mode)), mode, preserve_node_meta():
        stack.enter_context(warnings.catch_warnings(action="ignore"))  # tracing makes torch warn of its own code
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))  # whose recurrent layers are one call
        _pretend_cpu(program)
        args, kwargs = _example_inputs(program)
        module = program.module()
        _register_constants(module, program)
        _return_next_values(module, list(written_buffers(program)))
        joint = aot_export_joint_with_descriptors(stack, module, args, kwargs, decompositions={})
    return joint.graph_module.graph


def _check_loss(program: ExportedProgram, name: str) -> None:
    (output,) = program.graph.find_nodes(op="output")
    results = output.args[0][len(written_buffers(program)) :]
    results = [node.meta["val"] for node in results if isinstance(node, Node)]
    got = [f"{each.dtype}{list(each.shape)}" for each in results]
    if len(results) != 1 or results[0].numel() != 1 or not results[0].dtype.is_floating_point:
        raise InvalidGraph("results to differentiate", where=name, got=got, wanted="a loss: one floating-point number")


def _pretend_cpu(program: ExportedProgram) -> None:
    """Move the program's tensors from the meta device to a fake CPU, in place; they still have no storage.

    On the meta device torch has kernels for some composite calls, which then have no gradient.
    """
    moved: dict[int, torch.Tensor] = {}
    for state in (program.state_dict, program.constants):
        for tensor in state.values():
            if isinstance(tensor, torch.Tensor) and id(tensor) not in moved:
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
                trained = isinstance(tensor, torch.nn.Parameter)
                moved[id(tensor)] = torch.nn.Parameter(fake, tensor.requires_grad) if trained else fake
        state.update({name: moved[id(tensor)] for name, tensor in state.items() if id(tensor) in moved})
    for node in program.graph.nodes:
        node.args, node.kwargs = tree_map_only(torch.device, lambda _: torch.device("cpu"), (node.args, node.kwargs))
    program.graph_module.recompile()


def _register_constants(module: Any, program: ExportedProgram) -> None:
    """Make the tensors that the model's code made buffers, in place: autograd embeds other tensors in its graph."""
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.CONSTANT_TENSOR:
            owner, _, name = spec.target.rpartition(".")
            holder = module.get_submodule(owner)
            tensor = getattr(holder, name)
            delattr(holder, name)
            holder.register_buffer(name, tensor, persistent=False)


def _return_next_values(module: Any, buffers: Sequence[str]) -> None:
    """Make a module return, after its loss, what it would write to its buffers, in the order of `buffers`, in place.

    Autograd refuses to differentiate past a write to what it has saved.
    """
    following = {}
    for write in module.graph.find_nodes(op="call_function", target=ATEN.copy_.default):
        target, value = write.args
        with module.graph.inserting_before(write):
            following[target.target] = module.graph.call_function(ATEN.detach.default, (value,))
        write.replace_all_uses_with(value)
        module.graph.erase_node(write)
    (output,) = module.graph.find_nodes(op="output")
    output.args = ((*output.args[0], *(following[name] for name in buffers)),)
    codegen = module.graph._codegen
    codegen.pytree_info = codegen.pytree_info._replace(out_spec=tree_structure((0,) * len(output.args[0])))
    module.recompile()


def _example_inputs(program: ExportedProgram) -> Any:
    """Return positional and named arguments of the types that the program was exported with."""
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
    """Replace products, attention, norms and dropouts by the custom ops, in place.

    Their results may have other strides than torch's, with which a view may not be possible: views become reshapes.
    """
    seeds = count()
    for node in graph.nodes:
        if node.target is ATEN.view.default:
            node.target = ATEN.reshape.default
        elif node.target in SAME_ARGUMENTS:
            node.target = SAME_ARGUMENTS[node.target]
            if node.target is custom_ops.OPS.scaled_dot_product_attention.default:
                node.kwargs = {**node.kwargs, "seed": next(seeds)}
        elif node.target in DROPOUTS and _has_no_mask(node):
            _replace_dropout(node, next(seeds))
        elif node.target is ATEN.rms_norm.default and _has_one_weight(node):
            x, _, weight, *eps = node.args
            node.target = custom_ops.OPS.rms_norm.default
            node.args = (x, weight, *(eps or [torch.finfo(x.meta["val"].dtype).eps]))
        elif str(node.target) in GROUPED and len(node.args[1].meta["val"].shape) == 3:
            node.target, node.args = custom_ops.OPS.grouped_mm.default, (*node.args, *node.kwargs.values())[:3]
            node.kwargs = {}
        elif node.target is ATEN.histc.default and _counts_by_integers(node):
            node.target, node.args = custom_ops.OPS.histogram.default, node.args[:2]


DROPOUTS = (ATEN.dropout.default, ATEN.native_dropout.default)


def _has_no_mask(node: Node) -> bool:
    """Return whether a dropout has one result, or only the first of its two is read."""
    return node.target is ATEN.dropout.default or all(reader.args[1:] == (0,) for reader in node.users)


def _replace_dropout(node: Node, seed: int) -> None:
    """Replace a dropout, if it drops anything, by one whose gradient is the same dropout of the gradient."""
    x, p, train = node.args
    for reader in [] if node.target is ATEN.dropout.default else list(node.users):
        reader.replace_all_uses_with(node)
        node.graph.erase_node(reader)
    node.target, node.args, node.meta["val"] = custom_ops.OPS.dropout.default, (x, p, seed), x.meta["val"]
    if train is False or not p:
        node.replace_all_uses_with(x)


def _counts_by_integers(node: Node) -> bool:
    """Return whether a histogram counts integers, each in its own bin; torch's CPU kernel takes floats only."""
    x, *bins = node.args
    return not x.meta["val"].is_floating_point() and len(bins) == 3 and tuple(bins[1:]) == (0, bins[0] - 1)


GROUPED = ("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")


def _has_one_weight(node: Node) -> bool:
    return len(node.args) > 2 and node.args[2] is not None and len(node.args[1]) == 1


def _to_exported_graph(
    graph: Graph, program: ExportedProgram, numbers: Mapping[str | None, float | None]
) -> ExportedGraph:
    (output,) = graph.find_nodes(op="output")
    given = list(program.graph_signature.user_inputs)
    names = _names(program)
    placeholders = {
        node.name: _placeholder(node, names, given, numbers=numbers) for node in graph.find_nodes(op="placeholder")
    }
    results = list(zip(output.args[0], output.meta["desc"], strict=True))
    loss, *following = (node for node, role in results if isinstance(role, PlainAOTOutput))
    gradients: Mapping[str, Node] = {
        names[role.grad_of.target]: node
        for node, role in results
        if isinstance(role, GradAOTOutput) and isinstance(role.grad_of, ParamAOTInput) and node is not None
    }
    written = [names[target] for target in written_buffers(program)]
    next_values = dict(zip(written, following, strict=True))
    return ExportedGraph(graph, placeholders, (loss,), "torch.aot_autograd", gradients, next_values)


def _names(program: ExportedProgram) -> dict[str, str]:
    """Return the model's name of every parameter and buffer; tied parameters have the first one's name."""
    first = first_of_tied(program)
    targets = [spec.target for spec in program.graph_signature.input_specs if spec.target is not None]
    shown = {target: (first[target].target if target in first else target) or target for target in targets}
    return {target: name.removeprefix(PREFIX) for target, name in shown.items()}


def _placeholder(
    node: Node, names: Mapping[str, str], given: list[Any], *, numbers: Mapping[str | None, float | None]
) -> Placeholder:
    """Return what a placeholder of the joint graph stands for; the gradient of the loss itself is the constant 1."""
    match node.meta["desc"]:
        case ParamAOTInput(target=target):
            return Placeholder(names[target], "parameter", names[target])
        case BufferAOTInput(target=target) if target in numbers:
            return Placeholder(names[target], "constant", names[target], numbers[target])
        case BufferAOTInput(target=target):
            return Placeholder(names[target], "buffer", names[target])
        case PlainAOTInput(idx=number):
            return Placeholder(str(given[number]), "input", str(given[number]))
        case _:
            return Placeholder(node.name, "constant", node.name, 1.0)
