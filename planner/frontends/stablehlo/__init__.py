"""Graphs from JAX: StableHLO text is parsed by jaxlib's bindings, and its ops become ops of the op table.

parse            text -> a module, or an error with its line
document         a module -> a graph document: arguments, outputs, which output replaces which argument
translation      the walk: calls are followed, loops unrolled
symbolic_values  what is known of a value during the walk: numbers, broadcasts, stacked rows
symbol_builder   a document while it grows, and symbols turned into its values
op_table         StableHLO op -> row; rows are in pointwise, dot_conv, views, gather_scatter, reductions and windows
op_call          one op, as a row sees it
complex_rules    op of complex numbers -> row in the ops of their parts, which complex_parts holds; fourier transforms
fusion           trees of pointwise ops joined to one node
shardings        Shardy's shardings -> annotations
locations        the line or the name stack of an op
traced_function  a JAX function -> its text
next_values      which result of a function is the next value of which argument
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InvalidRequest

if TYPE_CHECKING:
    from planner.frontends.stablehlo.document import ImportedStablehlo
    from planner.frontends.stablehlo.traced_function import TracedFunction

__all__ = ["import_file", "import_jax", "import_stablehlo", "import_text", "trace_function"]


def import_stablehlo(text: str, name: str, kinds: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the graph document of StableHLO text, as `jax.jit(f).lower(...).as_text()` prints it.

    `kinds` overrides the kind (parameter, input, ...) of arguments by name (`p['wte']`) or by its root (`p`).

    Raises InvalidDocument for text that does not parse; InvalidGraph and UnsupportedOp, with line or name stack, for
    dynamic dims, data-dependent control flow and ops outside the table; InvalidRequest for an unknown kind or name.
    """
    return import_text(text, name, kinds).document


def import_file(path: Path, kinds: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the graph document of a file of StableHLO text, plain or gzip.

    The text is parsed in a subprocess first, because hostile text (nested a hundred thousand deep, say) can crash
    jaxlib's parser. Raises InvalidDocument for such text or a file that cannot be read, and what import_stablehlo
    raises.
    """
    try:
        from planner.frontends.stablehlo import parse
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    text = parse.read_text(path)
    parse.parse_in_subprocess(text, str(path))
    name = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    return import_text(text, name, kinds, where=str(path)).document


def import_jax(function: str, kinds: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the graph document of f, where `module:function` returns (f, *arguments).

    Arrays may be jax.ShapeDtypeStruct. Raises InvalidRequest for a function that cannot be called or traced, and what
    import_stablehlo raises.
    """
    try:
        from planner.frontends.stablehlo import traced_function
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    trace = traced_function.load_function(function)
    return import_text(trace.text, function.rpartition(":")[2], kinds, next_outputs=trace.text_next_outputs).document


def import_text(
    text: str,
    name: str,
    kinds: Mapping[str, str] | None = None,
    *,
    next_outputs: Mapping[int, int] | None = None,
    where: str = "",
) -> ImportedStablehlo:
    """Import StableHLO text, with the ids of the arguments and the numbers of constants; `where` names the text.

    `next_outputs` maps arguments to the outputs that replace them in the next run, by number.
    """
    try:
        from planner.frontends.stablehlo import document
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    return document.import_module_text(text, name, kinds, next_outputs=next_outputs or {}, where=where or name)


def trace_function(function: Any, *arguments: Any, next: Mapping[int, int] | None = None) -> TracedFunction:  # noqa: A002
    """Lower a JAX function on arguments of these shapes; `next` maps arguments to results, by number.

    Raises InvalidRequest.
    """
    try:
        from planner.frontends.stablehlo import traced_function
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    return traced_function.trace_function(function, *arguments, next=next)


def _missing_package_error(missing: ModuleNotFoundError) -> Exception:
    if missing.name not in ("jax", "jaxlib"):
        return missing
    return InvalidRequest(f"{missing.name} is not installed", where="import jax", wanted="pip install shardplan[jax]")
