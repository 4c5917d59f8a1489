"""A JAX function planned by a service: lowered here, converted and planned there.

shardplan serve &
python -m examples.clients.jax_client [URL [KEY]]
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp

from examples.clients.asking import Planner, shardings


def layer(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ weights["up"]) @ weights["down"]


def lowered(function: Any, *arguments: Any) -> bytes:
    """The function as StableHLO; its arguments may be shapes."""
    text: str = jax.jit(function).lower(*arguments).as_text()
    return text.encode()


def main(url: str = Planner.url, key: str | None = None) -> None:
    shape = jax.ShapeDtypeStruct
    weights = {"up": shape((1024, 4096), jnp.float32), "down": shape((4096, 1024), jnp.float32)}
    program = lowered(layer, weights, shape((4096, 1024), jnp.float32))
    document = Planner(url, key).plan(program, "text/x-stablehlo", mesh="dp=2,tp=4", gap=1e-3, name="mlp")
    for name, axes in shardings(document).items():
        print(name, axes)


if __name__ == "__main__":
    main(*sys.argv[1:])
