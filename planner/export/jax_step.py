"""A step jitted under the shardings of a plan, on a mesh with devices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import jax

from planner.errors import InvalidMesh, InvalidRequest


def jit_on_mesh(
    function: Callable[..., Any], in_shardings: Any, out_shardings: Any, *, mesh: Any, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the function jitted under shardings of a mesh with Auto axes; `options` are those of jax.jit.

    Arguments that are laid out otherwise are moved first; static ones have no sharding. Raises InvalidMesh for a mesh
    without devices; the returned function raises InvalidRequest for another number of arguments than was planned.
    """
    if not isinstance(mesh, jax.sharding.Mesh):
        raise InvalidMesh("mesh without devices", got=str(mesh), wanted="plan(..., mesh=jax.make_mesh(...))")
    jitted = jax.jit(function, in_shardings=in_shardings, out_shardings=out_shardings, **options)

    static = _find_static(function, options)

    @wraps(function)
    def run(*arguments: Any) -> Any:
        arrays = tuple(each for number, each in enumerate(arguments) if number not in static)
        if len(arrays) != len(in_shardings):
            wanted = f"{len(in_shardings)}, as planned; name others in static_argnums or static_argnames"
            raise InvalidRequest("number of arguments that are not static", got=len(arrays), wanted=wanted)
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            placed = iter(jax.device_put(arrays, in_shardings))
            return jitted(*(each if number in static else next(placed) for number, each in enumerate(arguments)))

    return run


def _find_static(function: Callable[..., Any], options: Mapping[str, Any]) -> set[int]:
    """Return the positions of the arguments that options of jax.jit declare static."""
    numbers, names = (options.get(key) for key in ("static_argnums", "static_argnames"))
    positions = list(inspect.signature(function).parameters) if numbers or names or numbers == 0 else []
    listed = [numbers] if isinstance(numbers, int) else numbers or ()
    named = [names] if isinstance(names, str) else names or ()
    return {number % len(positions) for number in listed} | {positions.index(name) for name in named}
