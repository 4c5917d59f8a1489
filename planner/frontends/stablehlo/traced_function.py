"""A JAX function as StableHLO text, and which argument of the text each leaf of its arguments is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax

from planner.errors import InvalidRequest


@dataclass(frozen=True, slots=True, eq=False)
class TracedFunction:
    """The text of a function and the trees of its arguments (a tuple) and results.

    Argument k of the text is leaf `kept[k]` of `arguments`: JAX drops arguments that nothing reads.
    """

    text: str
    arguments: Any
    results: Any
    kept: tuple[int, ...]

    def arguments_as(self, leaves: Mapping[int, Any], otherwise: Any) -> Any:
        """Return the tree of arguments with the given leaves by number, and `otherwise` as the others."""
        return _fill_tree(self.arguments, leaves, otherwise)

    def results_as(self, leaves: Mapping[int, Any], otherwise: Any) -> Any:
        """Return the tree of results with the given leaves by number, and `otherwise` as the others."""
        return _fill_tree(self.results, leaves, otherwise)


def _fill_tree(tree: Any, leaves: Mapping[int, Any], otherwise: Any) -> Any:
    structure = jax.tree.structure(tree)
    return structure.unflatten([leaves.get(number, otherwise) for number in range(structure.num_leaves)])


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


def trace_function(function: Any, *arguments: Any) -> TracedFunction:
    """Lower a function, jitted or not, on arguments or their shapes. Raises InvalidRequest."""
    name = getattr(function, "__name__", "function")
    try:
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        lowered = jitted.lower(*arguments)
        text = lowered.as_text(debug_info=True)
    except Exception as error:  # JAX and the function may raise anything
        raise InvalidRequest("JAX cannot trace the function", where=name, got=_format_error(error)) from error
    count = len(jax.tree.leaves(arguments))
    kept = lowered._lowering.compile_args.get("kept_var_idx", range(count))
    return TracedFunction(text, arguments, lowered.out_info, tuple(sorted(kept)))


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
