"""A function of JAX as StableHLO text, and which argument of the text each leaf of its arguments is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax

from planner.errors import InvalidRequest


@dataclass(frozen=True, slots=True, eq=False)
class TracedFunction:
    """`kept[k]` is the leaf of `arguments` that argument k of the text is: JAX leaves out those that nothing reads."""

    text: str
    arguments: Any
    """The tree (a tuple) of the function's arguments."""
    results: Any
    """The tree of its results."""
    kept: tuple[int, ...]

    def arguments_as(self, leaves: Mapping[int, Any], otherwise: Any) -> Any:
        """The tree of arguments with other leaves, by number."""
        return _fill_tree(self.arguments, leaves, otherwise)

    def results_as(self, leaves: Mapping[int, Any], otherwise: Any) -> Any:
        """The tree of results with other leaves, by number."""
        return _fill_tree(self.results, leaves, otherwise)


def _fill_tree(tree: Any, leaves: Mapping[int, Any], otherwise: Any) -> Any:
    structure = jax.tree.structure(tree)
    return structure.unflatten([leaves.get(number, otherwise) for number in range(structure.num_leaves)])


def load_function(function: str) -> TracedFunction:
    """`module:function`, which returns (f, *arguments), traced. Raises InvalidRequest."""
    module, _, name = function.partition(":")
    if not (module and name):
        raise InvalidRequest("function", got=function, wanted="module:function that returns (f, *arguments)")
    try:
        made = getattr(import_module(module), name)()
    except Exception as error:  # the user's own code may raise anything
        raise InvalidRequest("function cannot be called", where=function, got=_format_error(error)) from error
    if not (isinstance(made, Sequence) and made and callable(made[0])):
        raise InvalidRequest("what the function returns", where=function, got=type(made), wanted="(f, *arguments)")
    return trace_function(*made)


def trace_function(function: Any, *arguments: Any) -> TracedFunction:
    """A function, jitted or not, lowered on arguments or their shapes. Raises InvalidRequest."""
    name = getattr(function, "__name__", "function")
    try:
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        lowered = jitted.lower(*arguments)
        text = lowered.as_text(debug_info=True)
    except Exception as error:  # JAX's own, or any of the function's
        raise InvalidRequest("JAX cannot trace the function", where=name, got=_format_error(error)) from error
    count = len(jax.tree.leaves(arguments))
    kept = lowered._lowering.compile_args.get("kept_var_idx", range(count))
    return TracedFunction(text, arguments, lowered.out_info, tuple(sorted(kept)))


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
