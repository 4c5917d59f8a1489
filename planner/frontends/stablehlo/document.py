"""A module as a graph document: inputs from the arguments of @main, outputs, and which output replaces which input.

The kind of an argument is guessed from its position in the call: the first tree of arrays holds parameters, a later
tree that is donated holds optimizer state, a single array is an input. The text names positions only with debug info
(`lower(...).as_text(debug_info=True)`). Without it, floats are parameters; if any argument is donated, only the donated
ones are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jaxlib
from jaxlib.mlir import ir

from planner.errors import InvalidRequest, ShardplanError
from planner.frontends.graph_builder import build_document, prune_inputs, prune_nodes
from planner.frontends.stablehlo import shardings
from planner.frontends.stablehlo.complex_parts import ComplexParts
from planner.frontends.stablehlo.fusion import fuse_pointwise
from planner.frontends.stablehlo.locations import name_stack_of
from planner.frontends.stablehlo.op_call import tensor_type
from planner.frontends.stablehlo.op_table import OP_TABLE
from planner.frontends.stablehlo.parse import list_functions, parse_text
from planner.frontends.stablehlo.symbol_builder import SymbolBuilder
from planner.frontends.stablehlo.symbolic_values import Numbers, TensorSymbol
from planner.frontends.stablehlo.translation import StablehloTranslation
from planner.ir.dtypes import is_float
from planner.ir.graph import INPUT_KINDS, TensorType

_ROOT = re.compile(r"[A-Za-z_]\w*(\[\d+\](?=\[|\.))?")


@dataclass(frozen=True, slots=True)
class ImportedStablehlo:
    """A graph document, the ids of the arguments of @main in order, and the numbers of constant inputs by id."""

    document: dict[str, Any]
    arguments: tuple[str, ...]
    constants: Mapping[str, Numbers]


@dataclass(frozen=True, slots=True)
class _Argument:
    id: str
    name: str
    type: TensorType
    attributes: Any
    next: int | None = None
    """The number of the output that replaces the argument in the next run; None if none does."""

    @property
    def donated(self) -> bool:
        return "tf.aliasing_output" in self.attributes or "jax.buffer_donor" in self.attributes

    @property
    def root(self) -> str:
        """`p` of `p['wte']`, `args[0]` of `args[0]['wte']`."""
        return _root(self.name)

    @property
    def in_tree(self) -> bool:
        return self.root != self.name

    @property
    def path(self) -> str:
        """`['wte']` of `p['wte']`."""
        return self.name.removeprefix(self.root)


def import_module_text(
    text: str, name: str, kinds: Mapping[str, str] | None, *, next_outputs: Mapping[int, int], where: str
) -> ImportedStablehlo:
    """Import StableHLO text; `kinds` overrides the kinds of arguments, by name or by the root of their names.

    `next_outputs` maps arguments to the outputs that replace them, by number; donated ones are paired as well.

    Raises InvalidDocument, InvalidGraph and UnsupportedOp with `where` and the line or the name stack.
    """
    module = parse_text(text, where)  # keep the reference: operations are freed with their module
    functions = list_functions(module, where)
    main, builder = functions["main"], SymbolBuilder()
    arguments = _read_arguments(main, next_outputs, where)
    kind_of = _choose_kinds(arguments, kinds or {})
    values = [builder.add_input(each.id, kind_of[each.id], each.type, name=each.name) for each in arguments]
    translation = StablehloTranslation(functions, builder, where)
    for each in arguments:
        shardings.reject_gspmd(each.attributes, f"{where}: argument {each.name}")
        if "sdy.sharding" in each.attributes:
            translation.annotations.annotate_input(each.id, each.attributes["sdy.sharding"])
    results = translation.call("main", [*map(TensorSymbol.of, values)])
    outputs = [builder.whole(each).id for each in results if not isinstance(each, ComplexParts)]
    for attributes, output in zip(_read_list_attribute(main, "res_attrs", len(outputs)), outputs, strict=True):
        if "sdy.sharding" in attributes:
            translation.annotations.annotate_output(output, attributes["sdy.sharding"])
    document = _build_document(name, builder, outputs, annotations=translation.annotations.entries, arguments=arguments)
    builder.uncovered.report(where, OP_TABLE, framework="stablehlo")
    return ImportedStablehlo(document, tuple(each.id for each in arguments), builder.constants)


def _read_arguments(main: ir.Operation, next_outputs: Mapping[int, int], where: str) -> list[_Argument]:
    block, arguments = main.regions[0].blocks[0], []
    attributes = _read_list_attribute(main, "arg_attrs", len(block.arguments))
    for number, (value, given) in enumerate(zip(block.arguments, attributes, strict=True)):
        shown = name_stack_of(value.location) or f"arg{number}"
        try:
            kind = tensor_type(value.type)
        except ShardplanError as error:
            raise error.at(f"{where}: argument {shown}") from None
        arguments.append(_Argument(f"arg{number}", shown, kind, given, next_outputs.get(number)))
    return _pair_donated(arguments, main, where)


def _root(name: str) -> str:
    matched = _ROOT.match(name)
    return matched[0] if matched else name


def _read_results(main: ir.Operation, where: str) -> list[TensorType]:
    kinds = []
    for number, kind in enumerate(main.attributes["function_type"].value.results):
        try:
            kinds.append(tensor_type(kind))
        except ShardplanError as error:
            raise error.at(f"{where}: result {number}") from None
    return kinds


def _pair_donated(arguments: list[_Argument], main: ir.Operation, where: str) -> list[_Argument]:
    """Return the arguments, each donated one without a next output with the output that replaces it.

    That is the output of its type at the same place of its tree. JAX itself pairs by type alone, so its pair is the
    second choice, and the first unpaired output of the type the third.
    """
    results = _read_results(main, where)
    attributes = _read_list_attribute(main, "res_attrs", len(results))
    names = [given["jax.result_info"].value if "jax.result_info" in given else "" for given in attributes]
    free = dict(enumerate(zip(results, (name.removeprefix(_root(name)) for name in names), strict=True)))
    paired = {each.id: each.next for each in arguments if each.next is not None}
    for taken in paired.values():
        del free[taken]
    donated = [each for each in arguments if each.donated]
    for choice in (_is_same_place, _is_aliased, _has_same_type):
        for each in (each for each in donated if each.id not in paired):
            number = next((n for n, (kind, path) in free.items() if kind == each.type and choice(each, n, path)), None)
            if number is not None:
                paired[each.id] = number
                del free[number]
    return [replace(each, next=paired.get(each.id)) for each in arguments]


def _is_same_place(argument: _Argument, _: int, path: str) -> bool:
    return argument.path == path != ""


def _is_aliased(argument: _Argument, number: int, _: str) -> bool:
    key = "tf.aliasing_output"
    return key in argument.attributes and bool(argument.attributes[key].value == number)


def _has_same_type(argument: _Argument, *_: object) -> bool:
    return True


def _read_list_attribute(function: ir.Operation, name: str, count: int) -> list[Any]:
    return list(function.attributes[name]) if name in function.attributes else [{}] * count


def _choose_kinds(arguments: Sequence[_Argument], asked: Mapping[str, str]) -> dict[str, str]:
    """Return the kind of every argument by id. Raises InvalidRequest for a kind or a name that does not exist."""
    names = {name for each in arguments for name in (each.name, each.root)}
    for name, kind in asked.items():
        if kind not in INPUT_KINDS:
            raise InvalidRequest("kind of an argument", where=name, got=kind, wanted=f"one of {', '.join(INPUT_KINDS)}")
        if name not in names:
            raise InvalidRequest("no such argument", got=name, wanted=f"one of {', '.join(sorted(names))}")
    replaced = any(each.next is not None for each in arguments)
    trees = list(dict.fromkeys(each.root for each in arguments if each.in_tree))
    guessed = {each.id: _choose_kind(each, trees, replaced) for each in arguments}
    return {each.id: asked.get(each.name) or asked.get(each.root) or guessed[each.id] for each in arguments}


def _choose_kind(argument: _Argument, trees: Sequence[str], replaced: bool) -> str:
    if not is_float(argument.type.dtype) and argument.next is None:
        return "input"
    if not trees:
        return "input" if replaced and argument.next is None else "parameter"
    if argument.root == trees[0]:
        return "parameter"
    return "input" if argument.next is None else "optimizer_state"


def _build_document(
    name: str,
    builder: SymbolBuilder,
    outputs: list[str],
    *,
    annotations: list[dict[str, Any]],
    arguments: Sequence[_Argument],
) -> dict[str, Any]:
    # An annotated value must stay a value of the document, whether or not anything reads it.
    kept = [*outputs, *(entry["value"] for entry in annotations)]
    nodes = fuse_pointwise(prune_nodes(builder.nodes, kept), builder.inputs.values(), kept)
    return build_document(
        name,
        ("stablehlo", f"jaxlib {jaxlib.__version__}"),
        inputs=prune_inputs(builder.inputs.values(), nodes, kept),
        nodes=nodes,
        outputs=outputs,
        next_values=_map_next(arguments, outputs),
        annotations=annotations,
    )


def _map_next(arguments: Sequence[_Argument], outputs: Sequence[str]) -> dict[str, str]:
    """Return which output replaces each input, except values that are several outputs or the unchanged input."""
    count = Counter(outputs)
    return {
        each.id: outputs[each.next]
        for each in arguments
        if each.next is not None and count[outputs[each.next]] == 1 and outputs[each.next] != each.id
    }
