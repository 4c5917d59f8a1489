"""Training steps of JAX's libraries, planned and run for two steps on eight host devices, in a process of its own.

Written to standard output: a JSON object with the largest difference from the unsharded steps (relative to the largest
element of the leaf), the largest element of leaves that are rounding errors alone, the number of leaves of the state
that the plan splits, the messages of warnings, and whether the steps return the state in the layouts in which they take
it.

Leaves of rounding errors: the gradient of a bias of attention's keys is 0, since it adds the same to all scores of a
query, and that of a bias before a batch normalisation too, since its mean is subtracted. What is computed is the
rounding error of a sum, which is another for another order of addition, and Adam scales it by the step / eps.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

from tests.testing.jax_devices import host_environment

Step = tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]
"""A step that returns its state and its loss, the state, and the batch."""
FEATURES, HIDDEN, BATCH = 64, 256, 32
ZERO_GRADIENTS = {"linen": "['key']['bias']", "nnx": "['up']['bias']"}
"""Which leaves are rounding errors alone, by library."""


def run_library(name: str) -> dict[str, Any]:
    """Run a library's step in a process with eight host devices and return what it reports."""
    command = [sys.executable, "-m", "tests.testing.jax_libraries", name]
    run = subprocess.run(command, capture_output=True, timeout=300, check=False, env=host_environment(8))
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    report: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return report


def adamw() -> Any:
    import optax

    return optax.adamw(1e-2, eps=1e-3)  # gradients that are rounding errors alone stay small


def adafactor() -> Any:
    import optax

    return optax.adafactor(1e-2, min_dim_size_to_factor=32)


def multi_transform() -> Any:
    """Adam for matrices, momentum for one of them, vectors are frozen."""
    import jax
    import optax

    def label(parameters: Any) -> Any:
        def kind(path: Any, leaf: Any) -> str:
            return "vector" if leaf.ndim < 2 else "down" if "down" in jax.tree_util.keystr(path) else "matrix"

        return jax.tree_util.tree_map_with_path(kind, parameters)

    rules = {"matrix": optax.adam(1e-2), "down": optax.sgd(1e-2, momentum=0.9), "vector": optax.set_to_zero()}
    return optax.multi_transform(rules, label)


def _normal(*shape: int) -> Any:
    import numpy as np

    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) / shape[0] ** 0.5


def _batch() -> tuple[Any, Any]:
    return _normal(BATCH, FEATURES), _normal(BATCH, FEATURES)


def plain(optimizer: Callable[[], Any]) -> Step:
    """A perceptron as a dictionary of arrays."""
    import jax
    import jax.numpy as jnp
    import optax

    rule = optimizer()
    parameters = {
        "up": _normal(FEATURES, HIDDEN),
        "bias": _normal(HIDDEN),
        "down": _normal(HIDDEN, FEATURES),
        "scale": _normal(FEATURES),
    }

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        hidden = jax.nn.gelu(x @ parameters["up"] + parameters["bias"])
        return jnp.mean((hidden @ parameters["down"] * parameters["scale"] - y) ** 2)

    def step(parameters: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        updates, state = rule.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    return step, (parameters, rule.init(parameters)), _batch()


def without_optax() -> Step:
    """Gradient descent on a dictionary of arrays."""
    import jax
    import jax.numpy as jnp

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jax.nn.gelu(x @ parameters["up"]) @ parameters["down"] - y) ** 2)

    def step(parameters: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, parameters, gradients), value

    return step, ({"up": _normal(FEATURES, HIDDEN), "down": _normal(HIDDEN, FEATURES)},), _batch()


def linen() -> Step:
    """A transformer block of Flax's linen in a TrainState."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    from flax.training.train_state import TrainState

    class Block(nn.Module):  # type: ignore[misc]
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x))
            return x + nn.Dense(FEATURES)(nn.gelu(nn.Dense(HIDDEN)(nn.LayerNorm()(x))))

    block, x, y = Block(), _normal(8, 16, FEATURES), _normal(8, 16, FEATURES)
    state = TrainState.create(apply_fn=block.apply, params=block.init(jax.random.key(0), x), tx=adamw())

    def step(state: Any, x: Any, y: Any) -> Any:
        def loss(parameters: Any) -> Any:
            return jnp.mean((state.apply_fn(parameters, x) - y) ** 2)

        value, gradients = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), value

    return step, (state,), (x, y)


def nnx() -> Step:
    """A perceptron of Flax's nnx with batch normalisation and dropout, split into its state."""
    import jax.numpy as jnp
    from flax import nnx

    class Perceptron(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            self.up, self.down = nnx.Linear(FEATURES, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, FEATURES, rngs=rngs)
            self.norm, self.dropout = nnx.BatchNorm(HIDDEN, rngs=rngs), nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.down(self.dropout(nnx.gelu(self.norm(self.up(x)))))

    model = Perceptron(nnx.Rngs(0))
    graph, state = nnx.split((model, nnx.Optimizer(model, adamw(), wrt=nnx.Param)))

    def step(state: Any, x: Any, y: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        value, gradients = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), value

    return step, (state,), _batch()


def equinox() -> Step:
    """A perceptron of Equinox, its arrays apart from the rest."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    rule = adamw()
    model = eqx.nn.MLP(FEATURES, FEATURES, HIDDEN, 2, key=jax.random.key(0))
    parameters, rest = eqx.partition(model, eqx.is_array)

    def step(parameters: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(parameters: Any) -> Any:
            return jnp.mean((jax.vmap(eqx.combine(parameters, rest))(x) - y) ** 2)

        value, gradients = jax.value_and_grad(loss)(parameters)
        updates, state = rule.update(gradients, state, parameters)
        return eqx.apply_updates(parameters, updates), state, value

    return step, (parameters, rule.init(parameters)), _batch()


LIBRARIES: dict[str, Callable[[], Step]] = {
    "plain": without_optax,
    "adamw": lambda: plain(adamw),
    "adafactor": lambda: plain(adafactor),
    "multi_transform": lambda: plain(multi_transform),
    "linen": linen,
    "nnx": nnx,
    "equinox": equinox,
}


def measure(name: str) -> dict[str, Any]:
    import jax
    import numpy as np

    import planner.jax
    from planner.planning.plan_types import Request

    step, state, batch = LIBRARIES[name]()
    mesh = jax.make_mesh((2, 4), ("dp", "tp"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        free = planner.jax.plan(step, *state, *batch, mesh=mesh, request=Request(gap=0.5, time_limit_s=20.0))
        replicated = next(each for each in free.plan.baselines if each.name == "fully replicated")
        request = Request(memory_limit_bytes=replicated.peak_bytes // 2, gap=0.5, time_limit_s=20.0)
        planned = planner.jax.plan(step, *state, *batch, mesh=mesh, request=request)
    wanted = jax.tree.leaves(planned.in_shardings[: len(state)])
    under = jax.jit(step, in_shardings=planned.in_shardings, out_shardings=planned.out_shardings)
    alone = _two_steps(jax.jit(step), state, batch)
    runs = [_two_steps(under, state, batch)]
    with jax.set_mesh(mesh):
        runs.append(_two_steps(planned.jit(step), state, batch))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    zeros = [ZERO_GRADIENTS.get(name, "no leaf") in leaf for leaf in names]
    pairs = [(_plain(a), _plain(b), zero) for run in runs for a, b, zero in zip(run, alone, zeros, strict=True)]
    return {
        "difference": max(float(np.abs(a - b).max() / (np.abs(b).max() or 1)) for a, b, zero in pairs if not zero),
        "rounding": max((float(np.abs(a).max()) for a, _, zero in pairs if zero), default=0.0),
        "split": sum(not each.is_fully_replicated for each in wanted),
        "kept": all(leaf.sharding == each for run in runs for leaf, each in zip(run, wanted, strict=True)),
        "warnings": sorted({str(each.message) for each in caught}),
    }


def _two_steps(step: Callable[..., Any], state: Any, batch: Any) -> list[Any]:
    import jax

    for _ in range(2):
        *state, _ = step(*state, *batch)
    leaves: list[Any] = jax.tree.leaves(state)
    return leaves


def _plain(leaf: Any) -> Any:
    import jax
    import numpy as np

    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, np.float64)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1])))
