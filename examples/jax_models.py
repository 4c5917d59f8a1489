"""Networks in plain JAX, to be planned: GPT, Llama, Mixtral and ViT, as forward passes and training steps.

    shardplan import jax examples.jax_models:llama_step -o llama.json

Parameters are trees of arrays. A network's blocks are either a list, walked by Python, or, `scanned`, one tree with a
leading dim for the layers, walked by `lax.scan`. Shapes are enough to lower them: `shapes(model)` makes no array.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Tree = Any
Array = Any


@dataclass(frozen=True)
class Model:
    """Sizes of a network; `family` is gpt, llama, mixtral or vit."""

    family: str
    layers: int = 2
    width: int = 16
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 32
    vocabulary: int = 32
    positions: int = 8
    experts: int = 4
    chosen: int = 2
    patch: int = 4
    scanned: bool = False
    dtype: Any = jnp.float32

    @property
    def head(self) -> int:
        return self.width // self.heads


LLAMA_7B = Model("llama", 32, 4096, 32, 32, 11008, 32000, 2048, dtype=jnp.bfloat16)


def parameter_shapes(model: Model) -> Tree:
    """The tree of parameters as shapes."""
    d, f, kv = model.width, model.feed_forward, model.kv_heads * model.head
    block: dict[str, tuple[int, ...]] = {"norm1": (d,), "norm2": (d,), "q": (d, d), "o": (d, d)}
    match model.family:
        case "llama":
            block |= {"k": (d, kv), "v": (d, kv), "gate": (d, f), "up": (d, f), "down": (f, d)}
        case "mixtral":
            e = model.experts
            block |= {"k": (d, kv), "v": (d, kv), "router": (d, e)}
            block |= {"gate": (e, d, f), "up": (e, d, f), "down": (e, f, d)}
        case _:
            block |= {"k": (d, d), "v": (d, d), "up": (d, f), "down": (f, d)}
            block |= {"bias1": (d,), "bias2": (d,), "up_bias": (f,), "down_bias": (d,)}
    ends: dict[str, tuple[int, ...]] = {"norm": (d,), "out": (d, model.vocabulary)}
    if model.family == "vit":
        ends |= {"patches": (model.patch, model.patch, 3, d)}
    else:
        ends |= {"embedding": (model.vocabulary, d)}
    if model.family in ("gpt", "vit"):
        ends |= {"positions": (model.positions, d)}
    stacked = {name: (model.layers, *shape) for name, shape in block.items()}
    return {**ends, "blocks": stacked if model.scanned else [block] * model.layers}


def shapes(model: Model) -> Tree:
    """The tree of parameters for lowering."""
    made = partial(jax.ShapeDtypeStruct, dtype=model.dtype)
    return jax.tree.map(made, parameter_shapes(model), is_leaf=lambda leaf: isinstance(leaf, tuple))


def initialised(model: Model, seed: int = 0) -> Tree:
    """The tree of parameters as random arrays."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(0.3 * random.standard_normal(leaf.shape), leaf.dtype), shapes(model))


def rms_norm(x: Array, weight: Array) -> Array:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * weight + bias


def rope(x: Array) -> Array:
    """Halves of the last dim turned by angles that grow with the position; x [batch, sequence, heads, head]."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-jnp.arange(half) / half)
    angles = jnp.arange(x.shape[1])[:, None] * rates
    cos, sin = (turn(angles)[:, None, :].astype(x.dtype) for turn in (jnp.cos, jnp.sin))
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention(model: Model, x: Array, block: Tree) -> Array:
    """Grouped queries: h heads share each of g keys."""
    batch, length, _ = x.shape
    turned = model.family in ("llama", "mixtral")
    groups = model.kv_heads if turned else model.heads
    q = (x @ block["q"]).reshape(batch, length, model.heads, model.head)
    k, v = ((x @ block[name]).reshape(batch, length, groups, model.head) for name in "kv")
    if turned:
        q, k = rope(q), rope(k)
    q = q.reshape(batch, length, groups, model.heads // groups, model.head)
    scores = jnp.einsum("bsghe,btge->bghst", q, k) / math.sqrt(model.head)
    if model.family != "vit":
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    weights = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype)
    return jnp.einsum("bghst,btge->bsghe", weights, v).reshape(batch, length, model.width) @ block["o"]


def feed_forward(model: Model, x: Array, block: Tree) -> Array:
    if model.family == "llama":
        return (jax.nn.silu(x @ block["gate"]) * (x @ block["up"])) @ block["down"]
    if model.family == "mixtral":
        return experts(model, x, block)
    return jax.nn.gelu(x @ block["up"] + block["up_bias"]) @ block["down"] + block["down_bias"]


def experts(model: Model, x: Array, block: Tree) -> Array:
    """Every expert on every token, weighed by a softmax over the chosen: dense dispatch."""
    weights, places = lax.top_k(jax.nn.softmax(x @ block["router"], -1), model.chosen)
    weights = weights / weights.sum(-1, keepdims=True)
    share = jnp.einsum("bsk,bske->bse", weights, jax.nn.one_hot(places, model.experts, dtype=x.dtype))
    inner = jax.nn.silu(jnp.einsum("bsd,edf->bsef", x, block["gate"])) * jnp.einsum("bsd,edf->bsef", x, block["up"])
    return jnp.einsum("bsef,efd,bse->bsd", inner, block["down"], share)


def block_of(model: Model, x: Array, block: Tree) -> Array:
    plain = model.family in ("llama", "mixtral")
    first = rms_norm(x, block["norm1"]) if plain else layer_norm(x, block["norm1"], block["bias1"])
    x = x + attention(model, first, block)
    second = rms_norm(x, block["norm2"]) if plain else layer_norm(x, block["norm2"], block["bias2"])
    return x + feed_forward(model, second, block)


def forward(model: Model, parameters: Tree, inputs: Array) -> Array:
    """Logits of token ids [batch, sequence], or of images [batch, height, width, 3] for ViT."""
    if model.family == "vit":
        window = (model.patch, model.patch)
        layout = ("NHWC", "HWIO", "NHWC")
        x = lax.conv_general_dilated(inputs, parameters["patches"], window, "VALID", dimension_numbers=layout)
        x = x.reshape(x.shape[0], -1, model.width)
    else:
        x = parameters["embedding"][inputs]
    if "positions" in parameters:
        x = x + parameters["positions"][: x.shape[1]]
    if model.scanned:
        x, _ = lax.scan(lambda carried, block: (block_of(model, carried, block), None), x, parameters["blocks"])
    else:
        for block in parameters["blocks"]:
            x = block_of(model, x, block)
    x = rms_norm(x, parameters["norm"])
    return (x.mean(1) if model.family == "vit" else x) @ parameters["out"]


def loss(model: Model, parameters: Tree, inputs: Array, labels: Array) -> Array:
    """Mean cross entropy."""
    chances = jax.nn.log_softmax(forward(model, parameters, inputs).astype(jnp.float32))
    return -jnp.take_along_axis(chances, labels[..., None], -1).mean()


def sgd_step(model: Model, parameters: Tree, inputs: Array, labels: Array) -> tuple[Array, Tree]:
    """Loss and parameters as updated."""
    value, grads = jax.value_and_grad(partial(loss, model))(parameters, inputs, labels)
    return value, jax.tree.map(lambda weight, grad: weight - 0.1 * grad, parameters, grads)


def adam_step(model: Model, parameters: Tree, state: Tree, inputs: Array, labels: Array) -> tuple[Array, Tree, Tree]:
    """Loss, parameters and state (step, first and second moments) as updated; the update is in f32."""
    value, grads = jax.value_and_grad(partial(loss, model))(parameters, inputs, labels)
    step = state["step"] + 1
    grads = jax.tree.map(lambda grad: grad.astype(jnp.float32), grads)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["first"], grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["second"], grads)

    def updated(weight: Array, m: Array, v: Array) -> Array:
        change = m / (1 - 0.9**step) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)
        return (weight.astype(jnp.float32) - 1e-3 * change).astype(weight.dtype)

    moved = jax.tree.map(updated, parameters, first, second)
    return value, moved, {"step": step, "first": first, "second": second}


def adam_state(parameters: Tree) -> Tree:
    """Shapes of the state before the first step."""
    moments = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), parameters)
    return {"step": jax.ShapeDtypeStruct((), jnp.float32), "first": moments, "second": moments}


def data(model: Model, batch: int) -> tuple[Any, Any]:
    """Shapes of inputs and labels."""
    if model.family == "vit":
        side = math.isqrt(model.positions) * model.patch
        return jax.ShapeDtypeStruct((batch, side, side, 3), model.dtype), jax.ShapeDtypeStruct((batch,), jnp.int32)
    ids = jax.ShapeDtypeStruct((batch, model.positions), jnp.int32)
    return ids, ids


Lowerable = tuple[Any, ...]
"""A jitted function and its arguments, or their shapes."""


def inference(model: Model, batch: int) -> Lowerable:
    """A jitted forward pass and the shapes of its arguments."""
    return jax.jit(partial(forward, model)), shapes(model), data(model, batch)[0]


def training(model: Model, batch: int, optimizer: str = "sgd") -> Lowerable:
    """A jitted step that gives its parameters and states back, and the shapes of its arguments."""
    parameters = shapes(model)
    if optimizer == "sgd":
        return jax.jit(partial(sgd_step, model), donate_argnums=0), parameters, *data(model, batch)
    step = jax.jit(partial(adam_step, model), donate_argnums=(0, 1))
    return step, parameters, adam_state(parameters), *data(model, batch)


def llama_step() -> Lowerable:
    """A training step of Llama 7B, layer by layer."""
    return training(LLAMA_7B, 8, "adam")


def llama_scan() -> Lowerable:
    """The same with its layers in one loop."""
    return training(replace(LLAMA_7B, scanned=True), 8, "adam")
