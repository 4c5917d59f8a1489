"""Graphs from JAX: StableHLO text is parsed by jaxlib's bindings and its ops become ops of ours.

text         text -> a module, or an error with its line
document     a module -> a graph document: arguments, outputs, what takes whose place
translation  the program walked: calls followed, loops unrolled
symbols      what is known of a value on the way: numbers, broadcasts, stacked rows
writer       a document while it grows
table        StableHLO op -> row; rows stand in pointwise, products, views, lookups, reductions and windows
shardings    Shardy's shardings -> annotations
functions    a function of JAX -> its text
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
    """The graph document of StableHLO text, as `jax.jit(f).lower(...).as_text()` writes it.

    `kinds` says what arguments are, by name (`p['wte']`) or its root (`p`): a kind of the graph document.

    Raises InvalidDocument for text that is none, InvalidGraph and UnsupportedOp, with line or name stack, for dynamic
    dims, control flow that data decides and ops outside the table; InvalidRequest for a kind or name unknown.
    """
    return import_text(text, name, kinds).document


def import_file(path: Path, kinds: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The graph document of a file of StableHLO text, plain or gzip; as import_stablehlo.

    The text is tried in a process of its own first: jaxlib's parser is not made for hostile text, and one nested a
    hundred thousand deep ends the process. Raises InvalidDocument for such text, or a file that cannot be read.
    """
    try:
        from planner.frontends.stablehlo import parse
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    found = parse.read_text(path)
    parse.parse_in_subprocess(found, str(path))
    name = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    return import_text(found, name, kinds, where=str(path)).document


def import_jax(function: str, kinds: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The graph document of `module:function`, which returns (f, *arguments); arrays may be jax.ShapeDtypeStruct.

    Raises InvalidRequest for a function that cannot be called or traced, and what import_stablehlo raises.
    """
    try:
        from planner.frontends.stablehlo import traced_function
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    return import_text(traced_function.load_function(function).text, function.rpartition(":")[2], kinds).document


def import_text(text: str, name: str, kinds: Mapping[str, str] | None = None, *, where: str = "") -> ImportedStablehlo:
    """As import_stablehlo, with the arguments' ids and the numbers of constants. `where` is the text's file, if any."""
    try:
        from planner.frontends.stablehlo import document
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    return document.import_module_text(text, name, kinds, where=where or name)


def trace_function(function: Any, *arguments: Any) -> TracedFunction:
    """A function of JAX lowered on arguments of these shapes. Raises InvalidRequest."""
    try:
        from planner.frontends.stablehlo import traced_function
    except ModuleNotFoundError as missing:
        raise _missing_package_error(missing) from missing
    return traced_function.trace_function(function, *arguments)


def _missing_package_error(missing: ModuleNotFoundError) -> Exception:
    if missing.name not in ("jax", "jaxlib"):
        return missing
    return InvalidRequest(f"{missing.name} is not installed", where="import jax", wanted="pip install shardplan[jax]")
