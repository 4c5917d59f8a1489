"""A step jitted under the shardings of a plan, on a mesh with devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import jax

from planner.errors import InvalidMesh


def jit_on_mesh(
    function: Callable[..., Any], in_shardings: Any, out_shardings: Any, *, mesh: Any, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the function jitted under shardings of a mesh with Auto axes; `options` are those of jax.jit.

    Arguments that are laid out otherwise are moved first. Raises InvalidMesh for a mesh without devices.
    """
    if not isinstance(mesh, jax.sharding.Mesh):
        raise InvalidMesh("mesh without devices", got=str(mesh), wanted="plan(..., mesh=jax.make_mesh(...))")
    jitted = jax.jit(function, in_shardings=in_shardings, out_shardings=out_shardings, **options)

    @wraps(function)
    def run(*arguments: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return jitted(*jax.device_put(arguments, in_shardings))

    return run
