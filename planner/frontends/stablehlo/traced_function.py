"""A JAX function as StableHLO text, which argument of the text each leaf of its arguments is, and its next values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax

from planner.errors import InvalidRequest, UnsupportedOp
from planner.frontends.stablehlo.next_values import (
    NextValues,
    describe_unpaired,
    recognize_next_values,
    resolve_next_values,
)
from planner.ir.sharding import Shape


class NextValueWarning(UserWarning):
    """A result looks like the next value of an argument, and is not taken for one."""


@dataclass(frozen=True, slots=True, eq=False)
class TracedFunction:
    """The text of a function and the trees of its arguments (a tuple) and results.

    Argument k of the text is leaf `kept[k]` of `arguments`: JAX drops arguments that nothing reads. `next_outputs`
    maps leaves of `arguments` to the leaves of `results` that take their place in the next step.
    """

    text: str
    arguments: Any
    results: Any
    kept: tuple[int, ...]
    next_outputs: Mapping[int, int]

    @property
    def text_next_outputs(self) -> dict[int, int]:
        """The next outputs by argument of the text."""
        return {k: self.next_outputs[leaf] for k, leaf in enumerate(self.kept) if leaf in self.next_outputs}

    @property
    def argument_shapes(self) -> list[Shape]:
        """The shapes of the leaves of `arguments`; that of a random key is without its words."""
        return [leaf.shape for leaf in jax.tree.leaves(self.arguments)]

    @property
    def result_shapes(self) -> list[Shape]:
        """The shapes of the leaves of `results`."""
        return [leaf.shape for leaf in jax.tree.leaves(self.results)]

    def arguments_as(self, leaves: Mapping[int, Any], otherwise: Any) -> Any:
        """Return the tree of arguments with the given leaves by number, and `otherwise` as the others."""
        return _fill_tree(self.arguments, leaves, otherwise)

    def results_as(self, leaves: Mapping[int, Any], otherwise: Any) -> Any:
        """Return the tree of results with the given leaves by number, and `otherwise` as the others."""
        return _fill_tree(self.results, leaves, otherwise)


def _fill_tree(tree: Any, leaves: Mapping[int, Any], otherwise: Any) -> Any:
    structure = jax.tree.structure(tree)
    return structure.unflatten([leaves.get(number, otherwise) for number in range(structure.num_leaves)])


JITTED = type(jax.jit(abs))
"""What jax.jit returns. Wrappers of other libraries (`equinox.filter_jit`) take shapes for static arguments."""
DATA_DEPENDENT = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""What JAX raises where a function needs the value of an argument to be traced."""


def load_function(function: str) -> TracedFunction:
    """Call `module:function`, which returns (f, *arguments), and trace f. Raises InvalidRequest."""
    module, _, name = function.partition(":")
    if not (module and name):
        raise InvalidRequest("function", got=function, wanted="module:function that returns (f, *arguments)")
    try:
        example = getattr(import_module(module), name)()
    except Exception as error:  # user code may raise anything
        raise InvalidRequest("function cannot be called", where=function, got=_format_error(error)) from error
    if not (isinstance(example, Sequence) and example and callable(example[0])):
        raise InvalidRequest("what the function returns", where=function, got=type(example), wanted="(f, *arguments)")
    return trace_function(*example)


def trace_function(function: Any, *arguments: Any, next: Mapping[int, int] | None = None) -> TracedFunction:  # noqa: A002
    """Lower a function, jitted or not, on arguments or their shapes. Raises InvalidRequest.

    `next` gives numbers of results by number of argument; None: next values are recognized by the trees' structure, and
    a NextValueWarning names those that cannot be. Layouts of arrays are not read.
    """
    name = getattr(function, "__name__", "function")
    try:
        jitted = function if isinstance(function, JITTED) else jax.jit(function)
        lowered = jitted.lower(*jax.tree.map(_drop_sharding, arguments))
        text, given = lowered.as_text(debug_info=True), lowered.args_info[0]
        kept = lowered._lowering.compile_args.get("kept_var_idx", range(len(jax.tree.leaves(given))))
    except DATA_DEPENDENT as error:
        raise UnsupportedOp(
            "a shape, number or branch that depends on data",
            where=name,
            got=_format_error(error),
            wanted="jnp.where in place of a branch and of x[mask]; numbers as static arguments of jax.jit",
        ) from error
    except Exception as error:  # JAX and the function may raise anything
        raise InvalidRequest("JAX cannot trace the function", where=name, got=_format_error(error)) from error
    results = lowered.out_info
    found = resolve_next_values(next, given, results) if next is not None else recognize_next_values(given, results)
    if next is None:
        _warn_unpaired(found, given, results, is_gradient="transpose(jvp(" in text)
    return TracedFunction(text, given, results, tuple(sorted(kept)), found.outputs)


def _drop_sharding(leaf: Any) -> Any:
    """Return the shape of an array. A layout on Explicit axes would make JAX choose those of all that follows."""
    if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))


def _warn_unpaired(found: NextValues, arguments: Any, results: Any, *, is_gradient: bool) -> None:
    """Warn of ambiguous next values, and of a training step's results that may be the next value of an array.

    Donated arguments are left out: the text says which output takes their place.
    """
    remarks = list(found.remarks)
    donated = any(leaf.donated for leaf in jax.tree.leaves(arguments))
    if is_gradient and not remarks and not donated:
        remarks += describe_unpaired(arguments, results, found.outputs)
    for remark in remarks:
        warnings.warn(remark, NextValueWarning, stacklevel=4)


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
